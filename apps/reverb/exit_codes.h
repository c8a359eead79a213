// exit_codes.h — the exit codes of the program. The numbers are documented and never change.
#ifndef REVERB_APPS_REVERB_EXIT_CODES_H_
#define REVERB_APPS_REVERB_EXIT_CODES_H_

namespace reverb::program {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,        // the operation failed
  kBadUsage = 2,      // the command line or the configuration is invalid
  kUnreachable = 3,   // no Reverb server answers at that address
  kNotFound = 4,      // no such table or checkpoint
  kTimedOut = 5,      // the server answers, but the table did not allow the operation in time
  kNotConfirmed = 6,  // the user did not confirm
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_EXIT_CODES_H_
