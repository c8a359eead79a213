#include "completions.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "errors.h"
#include "gil.h"
#include "log.h"

namespace reverb::python {
namespace {

int MakeEventDescriptor() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    nb::raise_python_error();
  }
  return fd;
}

}  // namespace

Mailbox::Mailbox() : fd_(MakeEventDescriptor()) {}
Mailbox::~Mailbox() { close(fd_); }

bool Mailbox::Put(uint64_t number, Convert convert) {
  {
    const std::lock_guard lock(mu_);
    if (is_closed_) return false;
    done_.push_back({number, std::move(convert)});
    if (done_.size() > 1) return true;  // the loop knows already
  }
  const uint64_t one = 1;
  while (write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  return true;
}

std::vector<Mailbox::Completion> Mailbox::Take() {
  // Before the queue: what comes after this wakes the loop again.
  uint64_t count = 0;
  while (read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
  }
  std::vector<Completion> done;
  const std::lock_guard lock(mu_);
  done.swap(done_);
  return done;
}

void Mailbox::Close() {
  std::vector<Completion> dropped;
  const std::lock_guard lock(mu_);
  is_closed_ = true;
  dropped.swap(done_);
}

void StartedCall::Cancel() {
  const GilRelease released;
  cancel_();
  std::function<void()> give_back;
  {
    const std::lock_guard lock(outcome_->mu);
    outcome_->is_cancelled = true;
    give_back.swap(outcome_->give_back);
  }
  if (give_back) give_back();
}

nb::list Completions::Take() const {
  nb::list result;
  for (Mailbox::Completion& each : mailbox_->Take()) {
    nb::object value = nb::none();
    nb::object error = nb::none();
    try {
      value = each.convert();
    } catch (const nb::python_error& raised) {
      error = nb::borrow(raised.value());
    } catch (const std::exception& raised) {
      error = nb::handle(PyExc_RuntimeError)(raised.what());
    }
    result.append(nb::make_tuple(each.number, value, error));
  }
  EmitLog();
  return result;
}

void BindCompletions(nb::module_& module) {
  nb::class_<StartedCall>(module, "StartedCall", "An operation that no thread waits for.")
      .def("cancel", &StartedCall::Cancel, "Ends the operation, or gives back what it has got.");
  nb::class_<Completions>(module, "Completions", "The operations of an event loop that are done.")
      .def(nb::init<>())
      .def("fileno", [](const Completions& self) { return self.mailbox()->fd(); })
      .def("take", &Completions::Take,
           "Returns (number, result, exception) for each operation that is done.");
}

}  // namespace reverb::python
