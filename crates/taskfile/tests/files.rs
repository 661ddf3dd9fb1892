//! Task files: the example of Exludus Replicator, statements in all forms, wrong files with their
//! messages, the page for users, and files at random.

#[path = "files/forms.rs"]
mod forms;
#[path = "files/page.rs"]
mod page;
#[path = "files/random.rs"]
mod random;
#[path = "files/render.rs"]
mod render;
#[path = "files/wrong.rs"]
mod wrong;
