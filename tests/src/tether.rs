//! A child process that ends when we end, however we end: no test leaves a server behind, not even
//! one that was killed.
//!
//! A shell watches our end of a pipe and becomes the program itself, so the child's id is the
//! program's. Knows nothing of what it runs.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Waits for our end of the pipe to close. If nothing was said before, we are gone: ends the
/// program and removes its folder, unless that holds a file `keep`. A word before the end says that
/// we ended the program ourselves and still own the folder.
const WATCH: &str = r#"
exec 3<&0
(
    [ -z "$(cat <&3)" ] || exit 0
    kill -s "$TETHER_SIGNAL" $$
    tries=0
    while kill -0 $$ && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    [ -z "$TETHER_FOLDER" ] || [ -e "$TETHER_FOLDER/keep" ] || rm -rf "$TETHER_FOLDER"
) >/dev/null 2>&1 &
[ -z "$TETHER_ULIMIT" ] || ulimit $TETHER_ULIMIT
exec "$@" </dev/null 3<&-
"#;

/// The environment variable that limits the program: the arguments of the shell's `ulimit`, such as
/// `-v 3000000`.
pub const ULIMIT: &str = "TETHER_ULIMIT";

/// How a program is started.
#[derive(Debug)]
pub struct Launch {
    command: Command,
}

impl Launch {
    /// Runs `program`, and ends it with `signal` (a name such as `KILL`) when we end; removes
    /// `folder` behind it.
    pub fn new(program: &Path, signal: &str, folder: Option<&Path>) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCH, "sh"]).arg(program);
        command
            .env("TETHER_SIGNAL", signal)
            .env("TETHER_FOLDER", folder.map_or(OsStr::new(""), Path::as_os_str));
        command.stdin(Stdio::piped());
        Self { command }
    }

    /// The command behind it, for arguments, environment and output.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it as another user of this machine.
    pub fn user(mut self, user: Option<(u32, u32)>) -> Self {
        if let Some((user, group)) = user {
            self.command.gid(group).uid(user);
        }
        self
    }

    /// Starts it.
    pub fn start(mut self) -> std::io::Result<Tethered> {
        Ok(Tethered { child: self.command.spawn()? })
    }
}

/// A running program that ends with us.
#[derive(Debug)]
pub struct Tethered {
    child: Child,
}

impl Tethered {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child, for its output.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal by name (`TERM`, `KILL`, `STOP`).
    pub fn signal(&self, name: &str) {
        let _ = Command::new("/bin/kill").args(["-s", name, &self.id().to_string()]).status();
    }

    /// Waits until it has ended; `None` if it has not within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.disown();
                    return Some(status);
                }
                Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        self.disown();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Tells the watching shell that the program's end is our own doing.
    fn disown(&mut self) {
        if let Some(mut watch) = self.child.stdin.take() {
            let _ = watch.write_all(b"ended");
        }
    }
}

impl Drop for Tethered {
    fn drop(&mut self) {
        self.kill();
    }
}
