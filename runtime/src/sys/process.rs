//! Processors a thread may run on, timer slack, processor time used.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Processors this thread may run on, in ascending order.
pub(crate) fn allowed_processors() -> io::Result<Vec<usize>> {
    let mut set = empty_set();
    // SAFETY: 0 is this thread; `set` is a live `cpu_set_t` of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let max = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    Ok((0..max)
        .filter(|processor| {
            // SAFETY: `processor` is below CPU_SETSIZE.
            unsafe { libc::CPU_ISSET(*processor, &set) }
        })
        .collect())
}

/// Lets this thread run on one processor only.
pub(crate) fn pin_to(processor: usize) -> io::Result<()> {
    if processor >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = empty_set();
    // SAFETY: `processor` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: 0 is this thread; `set` is a live `cpu_set_t` of the size given.
    let result =
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives the calling thread this nice value, -20..=19.
pub(crate) fn run_last(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is involved; 0 names the calling thread (setpriority(2): nice values are per thread on Linux).
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Timers of this thread fire as late as the hardware makes them, not the 50 us later the kernel allows itself.
pub(crate) fn finest_timer_slack() -> io::Result<()> {
    let one: libc::c_ulong = 1;
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, one) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// This thread runs before every thread that is not of real time, whenever it can run (SCHED_FIFO).
pub(crate) fn run_first(priority: i32) -> io::Result<()> {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is this thread; `parameter` lives until the call returns.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Processor time this process has used, in user and kernel mode.
pub(crate) fn processor_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable memory of the right size.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: `rusage` is a C struct of integers: initialised by zeroes, and overwritten when the call succeeded.
    let usage = unsafe { usage.assume_init() };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_micros(time.tv_usec.unsigned_abs())
}

fn empty_set() -> libc::cpu_set_t {
    let set = MaybeUninit::zeroed();
    // SAFETY: `cpu_set_t` is an array of integers, for which zero bytes are a value.
    unsafe { set.assume_init() }
}
