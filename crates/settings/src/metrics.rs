//! The table `[metrics]`: where Prometheus can ask. It means the same in every file that has it.

use crate::document::Document;
use crate::forms;
use driftless_model::escape;
use std::net::SocketAddr;
use toml::de::DeValue;

/// The address at which metrics can be asked for, if the table is there and says it.
pub fn read(from: &mut Document) -> Option<SocketAddr> {
    let public = from.take("metrics.public", forms::flag).unwrap_or(false);
    let listen = from.take("metrics.listen", |value| listen(value, public));
    if from.has_table("metrics") && !from.has("metrics.listen") {
        from.wrong(
            "metrics.listen",
            "it is missing: where metrics can be asked for, such as listen = \"127.0.0.1:9464\"",
        );
    }
    listen
}

fn listen(value: &DeValue, public: bool) -> Result<SocketAddr, String> {
    let text = forms::text(value)?;
    let address: SocketAddr = text.parse().map_err(|_| {
        let text = escape(text.as_bytes());
        format!(
            "\"{text}\" is no address with a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\""
        )
    })?;
    if address.port() == 0 {
        return Err("port 0 is another one each time: name one".into());
    }
    if !address.ip().is_loopback() && !public {
        return Err(format!(
            "{} is seen by other hosts: write 127.0.0.1, or public = true in [metrics]",
            address.ip()
        ));
    }
    Ok(address)
}
