//! Servers under measurement, as child processes that end with their handle.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::load;

/// The operator's token of the servers that are measured; they listen on loopback only.
pub const OPERATOR: &str = "bench-operator-token-0123456789abcdef";

/// A running server.
pub struct Server {
    child: Child,
    /// `127.0.0.1:port`.
    pub address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; either way it is gone afterwards.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// Starts `command`, whose first line of output must hold its `http://` address.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {command:?}"))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next().context("the server ended without an address")??;
        let Some(at) = first.find("http://") else { bail!("no address in {first:?}") };
        let address = first[at + 7..].split(['/', ' ']).next().unwrap_or_default().to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, address })
    }

    /// A Charter on SQLite with its data in `data` and the components of `components`.
    pub fn charter(binary: &Path, data: &Path, components: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--components")
            .arg(components);
        command
            .env("CHARTER_OPERATOR_TOKEN", OPERATOR)
            .env("CHARTER_TELEMETRY_LOG", "warn")
            .env("CHARTER_AUTH_REGISTRATIONS_PER_HOUR", "0")
            .stderr(Stdio::null());
        Self::start(&mut command)
    }

    /// Waits until the port answers.
    pub async fn reachable(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(&self.address).await.is_err() {
            if Instant::now() > until {
                bail!("{} does not answer", self.address);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
        Ok(kilobytes * 1024)
    }

    /// One JSON request; anything but 2xx is an error.
    pub async fn json(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let text = body.map(Value::to_string);
        let authorization = format!("Bearer {token}");
        let headers: Vec<(&str, &str)> =
            if token.is_empty() { vec![] } else { vec![("authorization", &authorization)] };
        self.send(&load::request(method, path, &headers, text.as_deref())).await
    }

    /// Uploads a component.
    pub async fn upload(&self, name: &str, wasm: &[u8], activate: bool) -> Result<Value> {
        let query = if activate { "?activate=true&agree=*" } else { "" };
        let path = format!("/v1/operator/components/{name}{query}");
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: charter\r\nauthorization: Bearer {OPERATOR}\r\ncontent-type: application/wasm\r\ncontent-length: {}\r\n\r\n",
            wasm.len()
        );
        self.send(&[head.as_bytes(), wasm].concat()).await
    }

    /// The bytes of one request; anything but 2xx is an error.
    pub async fn send(&self, request: &[u8]) -> Result<Value> {
        let mut answer = Vec::new();
        let status = load::exchange(&self.address, &mut None, request, &mut answer).await?;
        let start =
            answer.windows(4).position(|window| window == b"\r\n\r\n").context("no head")? + 4;
        let body = String::from_utf8_lossy(&answer[start..]);
        if !(200..300).contains(&status) {
            bail!("{status}: {body}");
        }
        Ok(serde_json::from_str(&body).unwrap_or(Value::Null))
    }
}
