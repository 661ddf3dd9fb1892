//! Passwords and accounts by PAM. The feature `ftps` alone links with libpam, so this stands beside the
//! command and not in a library that each build has.

use driftless_ftps::PasswordCheck;
use nonstick::items::ItemsMut;
use nonstick::{
    AuthnFlags, ConversationAdapter, ErrorCode, PamShared, Result as PamResult, Transaction,
    TransactionBuilder,
};
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;

/// Check by a service of PAM.
pub struct PamCheck {
    service: String,
}

impl PamCheck {
    /// Returns the check of a service, a file in /etc/pam.d.
    pub fn new(service: &str) -> Self {
        PamCheck {
            service: service.to_owned(),
        }
    }

    /// Asks PAM, with the address of the client as its host. Without a password, only the account is
    /// checked.
    fn ask(&self, user: &str, password: Option<&str>, address: IpAddr) -> Result<(), String> {
        let has_nul = [user, password.unwrap_or_default()]
            .iter()
            .any(|text| text.contains('\0'));
        if has_nul || password.is_some_and(str::is_empty) {
            return Err("no password of PAM".to_owned());
        }
        let answers = FixedAnswers {
            user: user.to_owned(),
            password: password.map(str::to_owned),
        };
        let asked = || -> PamResult<()> {
            let mut transaction = TransactionBuilder::new_with_service(&self.service)
                .username(user)
                .build(answers.into_conversation())?;
            let host = address.to_canonical().to_string();
            transaction
                .items_mut()
                .set_remote_host(Some(OsStr::new(&host)))?;
            if password.is_some() {
                transaction.authenticate(AuthnFlags::SILENT)?;
            }
            transaction.account_management(AuthnFlags::SILENT)
        };
        asked().map_err(|code| format!("PAM service {}: {code}", self.service))
    }
}

impl PasswordCheck for PamCheck {
    fn check_password(&self, user: &str, password: &str, address: IpAddr) -> Result<(), String> {
        self.ask(user, Some(password), address)
    }

    fn check_account(&self, user: &str, address: IpAddr) -> Result<(), String> {
        self.ask(user, None, address)
    }
}

/// Answers to the questions of PAM modules: a client of FTP cannot be asked more.
struct FixedAnswers {
    user: String,
    password: Option<String>,
}

impl ConversationAdapter for FixedAnswers {
    fn prompt(&self, _: impl AsRef<OsStr>) -> PamResult<OsString> {
        Ok(OsString::from(&self.user))
    }

    fn masked_prompt(&self, _: impl AsRef<OsStr>) -> PamResult<OsString> {
        let password = self.password.as_ref();
        password
            .map(OsString::from)
            .ok_or(ErrorCode::ConversationError)
    }

    fn error_msg(&self, _: impl AsRef<OsStr>) {}

    fn info_msg(&self, _: impl AsRef<OsStr>) {}
}
