# Finds XRT, and says what was found or where it was looked for. Sets XRT_FOUND, and with it XRT_VERSION and the target
# XRT::xrt_coreutil. `cmake -P src/device/npu/find_xrt.cmake` shows the answer alone.
#
#   TYTO_XRT  AUTO: the npu device is built where XRT is; ON: no build without it; OFF: not looked for
#   XRT_DIR, CMAKE_PREFIX_PATH, and the variable XILINX_XRT that XRT's setup.sh sets, say where it is

# The first release that reads the ELF images MLIR-AIR makes ("group ELF"); device/npu/driver_stack.cc has the same.
set(oldest_xrt 2.20.115)
if(NOT DEFINED xrt_packages_folder)
  set(xrt_packages_folder /opt/xilinx/xrt)  # where XRT's own packages put it
endif()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(TYTO_XRT AUTO CACHE STRING "Build the npu device: AUTO (where XRT is found), ON or OFF")
  set_property(CACHE TYTO_XRT PROPERTY STRINGS AUTO ON OFF)
elseif(NOT DEFINED TYTO_XRT)
  set(TYTO_XRT AUTO)
endif()

set(XRT_FOUND FALSE)
if(TYTO_XRT STREQUAL "AUTO" OR TYTO_XRT)
  # Hints come before the system's folders: where the variable is set, that XRT is meant.
  find_package(XRT ${oldest_xrt} QUIET CONFIG HINTS "$ENV{XILINX_XRT}" PATHS ${xrt_packages_folder})
  if(XRT_FOUND)
    cmake_path(CONVERT "${XRT_DIR}/../../.." TO_CMAKE_PATH_LIST xrt_prefix NORMALIZE)
    string(REGEX REPLACE "/$" "" xrt_prefix "${xrt_prefix}")
    set(xrt_answer "XRT ${XRT_VERSION} in ${xrt_prefix}: the npu device is built")
  elseif(XRT_CONSIDERED_CONFIGS)
    list(JOIN XRT_CONSIDERED_VERSIONS ", " versions)
    list(JOIN XRT_CONSIDERED_CONFIGS ", " configs)
    set(xrt_answer "XRT ${versions} is too old for the NPU's ELF images, ${oldest_xrt} is needed (found: ${configs}): \
no npu device is built")
  else()
    set(from_variable "$ENV{XILINX_XRT} (XILINX_XRT)")
    if("$ENV{XILINX_XRT}" STREQUAL "")
      set(from_variable "XILINX_XRT, which is not set")
    endif()
    set(xrt_answer "No XRT in ${from_variable}, in ${xrt_packages_folder} or where CMake looks by itself (XRT_DIR, \
CMAKE_PREFIX_PATH, /usr): no npu device is built")
  endif()
else()
  set(xrt_answer "XRT is not looked for (TYTO_XRT=${TYTO_XRT}): no npu device is built")
endif()

if(NOT XRT_FOUND AND TYTO_XRT AND NOT TYTO_XRT STREQUAL "AUTO")
  message(FATAL_ERROR "${xrt_answer}, but TYTO_XRT=${TYTO_XRT} asks for one")
endif()
message(STATUS "${xrt_answer}")
