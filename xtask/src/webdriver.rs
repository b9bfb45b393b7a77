//! The little of WebDriver that the page's check needs: a session of a browser behind its driver, spoken to in JSON.
//! Relies on a driver program on the path. A driver ends with the value that holds the process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// The key under which WebDriver gives an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How long anything in the page may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser that can be driven.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    driver: &'static str,
    /// The line in which the driver tells the port, up to the number.
    told: &'static str,
    settings: fn(&Session<'_>) -> Value,
}

/// What a session is like.
pub(crate) struct Session<'a> {
    pub(crate) proxy: &'a str,
    /// The folder of what is saved.
    pub(crate) saved: &'a Path,
    pub(crate) is_private: bool,
}

/// Nothing of a browser's own goes out, and the proxy sees all the rest. Tests run as root, where Chromium has no
/// sandbox.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "Chromium",
        driver: "chromedriver",
        told: "successfully on port ",
        settings: |session| {
            let proxy = format!("--proxy-server={}", session.proxy);
            let more = if session.is_private { "--incognito" } else { "--no-first-run" };
            let prefs = json!({ "download.default_directory": session.saved, "download.prompt_for_download": false });
            json!({ "goog:loggingPrefs": { "browser": "ALL" }, "goog:chromeOptions": { "prefs": prefs, "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", more,
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-domain-reliability", "--disable-default-apps", "--metrics-recording-only",
                "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication",
                "--proxy-bypass-list=<-loopback>", proxy,
            ] } })
        },
    },
    Kind {
        name: "Firefox",
        driver: "geckodriver",
        told: "Listening on 127.0.0.1:",
        settings: |session| {
            let proxy = session.proxy;
            // Debian's Firefox has another name than the one that the driver looks for.
            let names = ["firefox", "firefox-esr"];
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let paths =
                names.iter().flat_map(|name| std::env::split_paths(&folders).map(move |folder| folder.join(name)));
            let binary = paths.into_iter().find(|path| path.is_file());
            json!({ "proxy": { "proxyType": "manual", "httpProxy": proxy, "sslProxy": proxy },
                "moz:firefoxOptions": { "binary": binary, "args": ["-headless"], "prefs": { "network.proxy.allow_hijacking_localhost": true,
                    "network.captive-portal-service.enabled": false, "network.connectivity-service.enabled": false,
                    "app.normandy.enabled": false,
                    "browser.privatebrowsing.autostart": session.is_private,
                    "browser.download.folderList": 2, "browser.download.dir": session.saved, "services.settings.server": "", "browser.safebrowsing.downloads.remote.enabled": false } } })
        },
    },
];

impl Kind {
    /// Whether the driver is on the path.
    pub(crate) fn is_here(&self) -> bool {
        Command::new(self.driver).arg("--version").output().is_ok()
    }
}

/// A session.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser; `None` where the driver is not on the path.
    pub(crate) fn start(kind: &Kind, session: &Session<'_>) -> Result<Option<Self>> {
        let mut driver = Command::new(kind.driver);
        driver.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut driver) = driver.spawn() else { return Ok(None) };
        let mut lines = BufReader::new(driver.stdout.take().context("the driver has no output")?).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let rest = line.split_once(kind.told)?.1.to_owned();
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
        });
        // A driver ends where nobody reads its log.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self { driver, port: port.context("the driver tells no port")?, session: String::new() };
        let begun = browser.call(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": (kind.settings)(session) } }),
        )?;
        browser.session = begun["sessionId"].as_str().context("no session")?.to_owned();
        browser.command("POST", "/timeouts", &json!({ "script": PATIENCE.as_millis() as u64 }))?;
        Ok(Some(browser))
    }

    /// The driver's process, which the browser's are below.
    pub(crate) fn driver(&self) -> u32 {
        self.driver.id()
    }

    pub(crate) fn open(&self, address: &str) -> Result<()> {
        self.command("POST", "/url", &json!({ "url": address })).map(drop)
    }

    /// The value of a function's body; the arguments are in `arguments`.
    pub(crate) fn script(&self, body: &str, arguments: &Value) -> Result<Value> {
        self.command("POST", "/execute/sync", &json!({ "script": body, "args": arguments }))
    }

    /// The value that the body of an asynchronous function gives; an error of the page's is one.
    pub(crate) fn awaited(&self, body: &str, arguments: &Value) -> Result<Value> {
        let whole = format!(
            "const done = arguments[arguments.length - 1]; (async (...args) => {{ {body} }})(...arguments)\
             .then((value) => done({{ value }}), (e) => done({{ error: e?.message ?? String(e) }}));"
        );
        let told = self.command("POST", "/execute/async", &json!({ "script": whole, "args": arguments }))?;
        ensure!(told.get("error").is_none(), "the page says {}", told["error"]);
        Ok(told["value"].clone())
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&self, expression: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.script(&format!("return Boolean({expression});"), &json!([]))? == true {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("`{expression}` does not come true")
    }

    /// Gives files to an input.
    pub(crate) fn choose(&self, css: &str, paths: &[&str]) -> Result<()> {
        let element = self.element(css)?;
        self.command("POST", &format!("/element/{element}/value"), &json!({ "text": paths.join("\n") })).map(drop)
    }

    /// Presses keys one after another, as a hand does.
    pub(crate) fn press(&self, keys: &[char]) -> Result<()> {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.command("POST", "/actions", &actions).map(drop)
    }

    /// The tab that commands go to.
    pub(crate) fn tab(&self) -> Result<String> {
        Ok(self.command("GET", "/window", &Value::Null)?.as_str().context("no tab")?.to_owned())
    }

    /// Opens another tab, which commands go to from now on.
    pub(crate) fn new_tab(&self) -> Result<()> {
        let made = self.command("POST", "/window/new", &json!({ "type": "tab" }))?;
        self.go_to(made["handle"].as_str().context("no tab")?)
    }

    pub(crate) fn go_to(&self, tab: &str) -> Result<()> {
        self.command("POST", "/window", &json!({ "handle": tab })).map(drop)
    }

    /// Closes the tab that commands go to; then [`go_to`](Self::go_to) names another one.
    pub(crate) fn close_tab(&self) -> Result<()> {
        self.command("DELETE", "/window", &Value::Null).map(drop)
    }

    fn element(&self, css: &str) -> Result<String> {
        let found = self.command("POST", "/element", &json!({ "using": "css selector", "value": css }))?;
        Ok(found[ELEMENT].as_str().with_context(|| format!("there is no {css}"))?.to_owned())
    }

    /// A picture of the window, as base64 of a PNG.
    pub(crate) fn picture(&self) -> Result<String> {
        Ok(self.command("GET", "/screenshot", &Value::Null)?.as_str().context("no picture")?.to_owned())
    }

    /// A command of Chromium's own protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.command("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// The errors on the console since the last call.
    pub(crate) fn console(&self) -> Result<Vec<String>> {
        let log = self.command("POST", "/se/log", &json!({ "type": "browser" }))?;
        let severe = log.as_array().into_iter().flatten().filter(|line| line["level"] == "SEVERE");
        Ok(severe.map(|line| line["message"].to_string()).collect())
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).context("the driver has gone")?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        let (len, port) = (body.len(), self.port);
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n")?;
        write!(stream, "Content-Length: {len}\r\nConnection: close\r\n\r\n{body}")?;
        let mut answer = BufReader::new(stream);
        let (mut line, mut len) = (String::new(), 0);
        while answer.read_line(&mut line)? > 0 && !line.trim().is_empty() {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse()?;
            }
            line.clear();
        }
        let mut text = vec![0; len];
        answer.read_exact(&mut text)?;
        let mut answer: Value = serde_json::from_slice(&text).context("the driver's answer is not JSON")?;
        let value = answer["value"].take();
        let is_error = value["error"].is_string() && value.get("stacktrace").is_some();
        ensure!(!is_error, "{path}: {}: {}", value["error"], value["message"]);
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.command("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
