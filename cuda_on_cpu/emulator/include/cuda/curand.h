// The header of cuRAND's host functions, which the emulator does not have. Device code includes it, too.
#pragma once
