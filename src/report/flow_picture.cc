#include "base/error.h"
#include "report/html_style.h"
#include "report/report.h"
#include "report/svg.h"

namespace tyto {

std::string flow_picture(const Profile& profile) {
  if (profile.runs.empty()) fail_input("profile", "has no run to draw");
  const Summary summary = summarise(profile, profile.runs.back());
  const bool decoded = summary.decode.tokens > 0;
  std::string drawing =
      flow_drawing(decoded ? summary.decode : summary.prefill, !decoded, summary.modelled);
  // On a page the drawing has the page's namespace and style, and a width to fit into.
  drawing.insert(drawing.find('>') + 1,
                 fmt::format("<style>{}svg{{max-width:none}}</style>", kStyle));
  drawing.insert(drawing.find("<svg") + 4, R"( xmlns="http://www.w3.org/2000/svg")");
  return drawing;
}

}  // namespace tyto
