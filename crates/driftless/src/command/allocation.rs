//! The allocation of Slurm that this process runs in, for `sync --slurm`: its nodes, and the program
//! that srun starts there.
//!
//! sbatch(1), salloc(1) and srun(1) set the variables in every process of a job.

use driftless_cast::parse_hostlist;

/// Variable with the nodes of the job, as a host list.
const NODES: &str = "SLURM_JOB_NODELIST";
/// Variable with the number of the job.
const JOB: &str = "SLURM_JOB_ID";
/// Variable with the number of components, which only heterogeneous jobs have.
const COMPONENTS: &str = "SLURM_HET_SIZE";
/// Default of `--agent-path`.
const PROGRAM: &str = "driftless";

/// Returns the nodes of the allocation.
///
/// # Errors
/// Returns why there are none.
pub fn nodes() -> Result<Vec<String>, String> {
    nodes_of(&|name| std::env::var(name).ok())
}

fn nodes_of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    let (Some(list), Some(_)) = (variable(NODES), variable(JOB)) else {
        if variable(COMPONENTS).is_some() {
            return Err(
                "--slurm: this job is heterogeneous, and each component has its own nodes; name the hosts with --hosts".into(),
            );
        }
        return Err(format!(
            "--slurm: {NODES} and {JOB} are not set; run this command in a job of Slurm (sbatch or salloc), or name the hosts with --hosts"
        ));
    };
    parse_hostlist(&list, &mut |_| Err("a file is not expected".into()))
        .map_err(|error| format!("--slurm: {NODES}=\"{list}\": {error}"))
}

/// Returns the command that starts driftless on a node: by default this program, under the path
/// that it has here.
pub fn program(agent: Vec<String>) -> Vec<String> {
    match crate::command::gateway::program() {
        Ok(path) if agent == [PROGRAM] => vec![path],
        _ => agent,
    }
}

#[cfg(test)]
mod tests {
    use super::nodes_of;

    #[test]
    fn nodes_are_those_of_the_job() {
        let nodes = |list: &'static str, job: Option<&'static str>| {
            nodes_of(&|name| match name {
                super::JOB => job.map(str::to_owned),
                _ => Some(list.to_owned()),
            })
        };
        let listed = nodes("n[1-2],io07", Some("7")).expect("nodes");
        assert_eq!(listed, ["n1", "n2", "io07"]);
        for (list, job) in [("n[1-2]", None), ("n[2-", Some("7")), ("@n", Some("7"))] {
            let error = nodes(list, job).expect_err("no nodes");
            assert!(error.starts_with("--slurm: "), "{error}");
        }
        let of_components = |name: &str| (name == super::COMPONENTS).then(|| "2".to_owned());
        let error = nodes_of(&of_components).expect_err("no nodes");
        assert!(error.contains("heterogeneous"), "{error}");
    }
}
