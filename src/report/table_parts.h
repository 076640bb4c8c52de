// The sections of a report, one function each. Inside src/report only.
#pragma once

#include <vector>

#include "power/idle_subtraction.h"
#include "report/summary.h"
#include "report/table.h"
#include "trace/profile.h"

namespace tyto {

void add_facts(const Profile& profile, Table& table);  // model, options, devices; as notes
Table headline_table(const Profile& profile, const ProfileRun& run, const Summary& summary);
Table flow_table(const PhaseSummary& phase, const Summary& summary, bool prefill);
Table attribution_table(const Summary& summary);
Table layer_table(const Summary& summary);
Table call_table(const Profile& profile, const Summary& summary);
Table host_table(const Summary& summary);
Table buffer_table(const Summary& summary);
Table dispatch_table(const Profile& profile, const ProfileRun& run, const Summary& summary);
Table operator_table(const Summary& summary);
Table trend_table(const Summary& summary);
Table setup_table(const Profile& profile, const Summary& summary);
Table receipt_table(const Profile& profile, const ProfileRun& run);
Table sweep_table(const Profile& profile);

}  // namespace tyto
