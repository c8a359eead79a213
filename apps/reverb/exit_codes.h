// exit_codes.h — how the program ends. The numbers are documented and never change.
#ifndef REVERB_APPS_REVERB_EXIT_CODES_H_
#define REVERB_APPS_REVERB_EXIT_CODES_H_

namespace reverb::program {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,        // it was tried and did not work
  kBadUsage = 2,      // the command line, or the configuration, is wrong
  kUnreachable = 3,   // no Reverb server answers at that address
  kNotFound = 4,      // there is no such table, or no such checkpoint
  kTimedOut = 5,      // the server answers, but the table did not allow it in time
  kNotConfirmed = 6,  // a question was not answered with yes
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_EXIT_CODES_H_
