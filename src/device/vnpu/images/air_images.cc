#include "device/vnpu/images/air_images.h"

#include "base/error.h"
#include "device/vnpu/images/image_writer.h"

namespace tyto::vxrt {

Image air_image(const AirDims& dims, std::string_view program, float eps) {
  const AirProgram abi = air_program(program, dims);
  for (const auto writers : {attention_images(), prompt_images(), token_images()})
    for (const NamedWriter& writer : writers) {
      if (writer.program != program) continue;
      InstanceBuilder builder(abi, 0);
      ImageWriter to{builder, abi, dims, eps};
      writer.write(to);
      Image image;
      image.instances.push_back(builder.take(static_cast<uint32_t>(to.rows()), to.launches));
      check_image(image, abi.name);
      return image;
    }
  fail_unsupported(std::string(program), "no image is known for this program");
}

}  // namespace tyto::vxrt
