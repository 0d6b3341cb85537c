// torch's global settings, such as at::globalContext(). This is torch's own ATen/Context.h, which the light header of
// this name hides.
#pragma once
#include_next <ATen/Context.h>
