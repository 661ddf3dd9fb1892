#!/usr/bin/env python3
"""Stands in for OpenPBS 23.06: a server with a scheduler, and the commands of users and administrators.

    pbs.py FOLDER server        serves until the end of its standard input; FOLDER/nodes.json has the words that enter each node
    pbs.py FOLDER COMMAND ...   qsub, qalter, qhold, qrls, qdel, qstat, qmgr or pbsnodes

A command sends its arguments through a Unix socket, and the kernel tells the server the user. The server runs jobs as processes on
nodes. It writes its state to FOLDER/state.json, so jobs survive a restart of the server.

The forms of all output are those of OpenPBS 23.06: src/cmds/{qstat,qmgr,pbsnodes,qrls}.c, src/lib/Libjson/cJSON/pbs_cjson.c for values,
src/lib/Liblog/pbs_messages.c and src/include/pbs_error.h for errors. Only what the tests need is here.
"""

import fcntl
import getopt
import json
import math
import os
import pwd
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

SERVER = "pbshead"
VERSION = "23.06.06"
# pbs_error.h
UNKNOWN_JOB, NO_ATTRIBUTE, PERMISSION, BAD_VALUE, RUNNING, UNKNOWN_NODE = 15001, 15002, 15007, 15014, 15017, 15062
UNKNOWN_RESOURCE = 15035
MESSAGES = {
    UNKNOWN_JOB: "Unknown Job Id",
    PERMISSION: "Unauthorized Request ",
    BAD_VALUE: "Illegal attribute or resource value",
    RUNNING: "Cannot modify attribute while job running ",
    UNKNOWN_NODE: "Unknown node ",
    UNKNOWN_RESOURCE: "Unknown resource",
}
QSUB_OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
TICK_SECONDS = 0.1
NODE_CPUS = 2
KNOWN_RESOURCES = {"ncpus": "long", "mem": "size", "host": "string", "vnode": "string", "arch": "string", "walltime": "duration"}


class Refusal(Exception):
    """An error that a command prints."""

    def __init__(self, code, text=None):
        super().__init__(text or MESSAGES[code])
        self.code = code


def parsed(value):
    """A value as pbs_json_insert_parsed() prints it: JSON if cJSON takes it for JSON. It reads numbers by strtod()."""
    try:
        number = float(value) if value[:1] in "-0123456789" else json.loads(value, parse_constant=int)
    except ValueError:
        return value
    if not isinstance(number, float):
        return number
    if math.isinf(number):
        return None
    return int(number) if number.is_integer() else number


def printed(members):
    head = {"timestamp": int(time.time()), "pbs_version": VERSION, "pbs_server": SERVER}
    return json.dumps({**head, **members}, indent="\t", separators=(",", ":\t"), ensure_ascii=False) + "\n"


def split_list(text):
    """Splits at commas outside quotes."""
    parts, quote = [""], None
    for letter in text:
        if letter == "," and not quote:
            parts.append("")
            continue
        if letter in "'\"":
            quote = None if quote == letter else quote or letter
        parts[-1] += letter
    return parts


def directives(script):
    """The options in a script: lines #PBS before the first command."""
    words = []
    for line in script.splitlines():
        if line.startswith("#PBS"):
            words += shlex.split(line[len("#PBS"):])
        elif line.strip() and not line.startswith(("#", ":")):
            break
    return words


def chunks(select):
    """The chunks of a select specification: a count and its resources."""
    found = []
    for chunk in select.split("+"):
        parts = chunk.split(":")
        count = int(parts.pop(0)) if parts[0].isdigit() else 1
        found.append((count, dict(part.split("=", 1) for part in parts)))
    return found


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.RLock()
        with open(f"{folder}/nodes.json", encoding="utf-8") as file:
            self.nodes = json.load(file)
        try:
            with open(f"{folder}/state.json", encoding="utf-8") as file:
                self.state = json.load(file)
        except FileNotFoundError:
            self.state = {"next": 1, "jobs": {}, "resources": {}, "nodes": {}}
        for name in self.nodes:
            self.state["nodes"].setdefault(name, {"state": "free", "resources": {}})

    def save(self):
        with open(f"{self.folder}/state.new", "w", encoding="utf-8") as file:
            json.dump(self.state, file)
        os.rename(f"{self.folder}/state.new", f"{self.folder}/state.json")

    # Commands. Each returns what it prints.

    def answer(self, request, uid):
        name, args = request["argv"][0], request["argv"][1:]
        try:
            with self.lock:
                out = getattr(self, "do_" + name)(args, request, uid)
                self.save()
            return {"out": out, "err": "", "code": 0}
        except Refusal as refusal:
            return {"out": "", "err": str(refusal), "code": refusal.code & 255 or 1}
        except getopt.GetoptError as error:
            return {"out": "", "err": f"{name}: {error}\n", "code": 2}

    def do_qsub(self, args, request, uid):
        options, operands = getopt.getopt(args, QSUB_OPTIONS)
        if operands and request["script"] is None:
            script = "exec " + shlex.join(operands) + "\n"
        else:
            script = request["script"] or ""
        given, _ = getopt.getopt(directives(script), QSUB_OPTIONS)
        # An option of the command line replaces that of the script, but for resources.
        names = {name for name, _ in options}
        options = [pair for pair in given if pair[0] not in names or pair[0] == "-l"] + options
        values = dict(options)
        resources = self.resources([value for name, value in options if name == "-l"])
        number, self.state["next"] = self.state["next"], self.state["next"] + 1
        array = "[]" if "-J" in values else ""
        job = {
            "name": values.get("-N", request["script_name"] or "STDIN"),
            "uid": uid,
            "owner": pwd.getpwuid(uid).pw_name,
            "hold": "u" if "-h" in values else "n",
            "queue": values.get("-q", "workq"),
            "resources": resources,
            "variables": self.variables(values, request, uid),
            "script": script,
            "tasks": {},
            "started": False,
        }
        if array:
            limits = values["-J"].split("%")[0]
            span, step = (limits.split(":") + ["1"])[:2]
            first, last = (int(text) for text in span.split("-"))
            job["indices"] = limits
            job["tasks"] = {str(index): {"state": "Q"} for index in range(first, last + 1, int(step))}
        else:
            job["tasks"] = {"": {"state": "Q"}}
        self.state["jobs"][f"{number}{array}"] = job
        return f"{number}{array}.{SERVER}\n"

    def resources(self, lists):
        resources = {}
        for item in (item for text in lists for item in split_list(text)):
            name, value = item.split("=", 1)
            resources[name] = value
        resources.setdefault("select", f"1:ncpus={resources.get('ncpus', 1)}")
        self.check_select(resources["select"])
        return resources

    def check_select(self, select):
        known = {**KNOWN_RESOURCES, **self.state["resources"]}
        try:
            names = {name for _, wishes in chunks(select) for name in wishes}
        except ValueError:
            raise Refusal(BAD_VALUE, f"qsub: {MESSAGES[BAD_VALUE]}: select\n") from None
        for name in names - set(known):
            raise Refusal(UNKNOWN_RESOURCE, f"qsub: {MESSAGES[UNKNOWN_RESOURCE]} {name}\n")

    def variables(self, values, request, uid):
        env, home = request["env"], pwd.getpwuid(uid).pw_dir
        variables = {
            "PBS_O_HOME": env.get("HOME", home),
            "PBS_O_LOGNAME": pwd.getpwuid(uid).pw_name,
            "PBS_O_PATH": env.get("PATH", ""),
            "PBS_O_SHELL": env.get("SHELL", "/bin/sh"),
            "PBS_O_WORKDIR": request["cwd"],
            "PBS_O_SYSTEM": "Linux",
            "PBS_O_QUEUE": values.get("-q", "workq"),
            "PBS_O_HOST": SERVER,
        }
        if "-V" in values:
            variables.update(env)
        for item in split_list(values.get("-v", "")):
            name, equals, value = item.partition("=")
            if equals:
                variables[name] = value.strip("'\"")
            elif name in env:
                variables[name] = env[name]
        return variables

    def job(self, command, text, uid=None):
        """Returns a job that the user may change."""
        number = text.split(".")[0]
        job = self.state["jobs"].get(number)
        if not job:
            name = text if "." in text else f"{text}.{SERVER}"
            raise Refusal(UNKNOWN_JOB, f"{command}: {MESSAGES[UNKNOWN_JOB]} {name}\n")
        if uid is not None and uid not in (0, job["uid"]):
            self.refuse_job(command, PERMISSION, number)
        return number, job

    def refuse_job(self, command, code, number):
        raise Refusal(code, f"{command}: {MESSAGES[code]} {number}.{SERVER}\n")

    def do_qalter(self, args, _request, uid):
        options, operands = getopt.getopt(args, QSUB_OPTIONS.replace("h", "h:", 1))
        for text in operands:
            number, job = self.job("qalter", text, uid)
            for name, value in options:
                if name != "-l":
                    raise Refusal(NO_ATTRIBUTE, f"qalter: this stand-in knows no option {name}\n")
                if any(task["state"] != "Q" for task in job["tasks"].values()):
                    self.refuse_job("qalter", RUNNING, number)
                job["resources"].update(self.resources([value]))
        return ""

    def change_hold(self, command, args, uid, change):
        options, operands = getopt.getopt(args, "h:")
        kinds = dict(options).get("-h", "u")
        for text in operands:
            number, job = self.job(command, text, uid)
            if uid != 0 and set(kinds) - {"u"}:
                self.refuse_job(command, PERMISSION, number)
            holds = change(set(job["hold"]) - {"n"}, set(kinds))
            job["hold"] = "".join(sorted(holds, reverse=True)) or "n"
        return ""

    def do_qhold(self, args, _request, uid):
        return self.change_hold("qhold", args, uid, lambda holds, kinds: holds | kinds)

    def do_qrls(self, args, _request, uid):
        return self.change_hold("qrls", args, uid, lambda holds, kinds: holds - kinds)

    def do_qdel(self, args, _request, uid):
        for text in args:
            number, job = self.job("qdel", text, uid)
            for task in job["tasks"].values():
                if "pid" in task and task["state"] == "R":
                    os.killpg(task["pid"], signal.SIGKILL)
            del self.state["jobs"][number]
        return ""

    def do_qstat(self, args, _request, _uid):
        options, operands = getopt.getopt(args, "fF:tx")
        if ("-f", "") not in options or ("-F", "json") not in options:
            raise Refusal(2, "qstat: this stand-in knows only -f -F json\n")
        numbers = [self.job("qstat", text)[0] for text in operands] or list(self.state["jobs"])
        shown = {}
        for number in numbers:
            job = self.state["jobs"][number]
            shown[f"{number}.{SERVER}"] = self.shown(number, job)
            if ("-t", "") in options and "indices" in job:
                for index, task in job["tasks"].items():
                    name = number.replace("[]", f"[{index}]")
                    shown[f"{name}.{SERVER}"] = self.shown_subjob(number, job, index, task)
        return printed({"Jobs": shown} if shown else {})

    def shown(self, number, job):
        states = [task["state"] for task in job["tasks"].values()]
        shown = {
            "Job_Name": parsed(job["name"]),
            "Job_Owner": f"{job['owner']}@{SERVER}",
            "job_state": self.job_state(job, states),
            "queue": job["queue"],
            "server": SERVER,
            "Checkpoint": "u",
            "ctime": time.ctime(),
            "Hold_Types": job["hold"],
            "Join_Path": "n",
            "Keep_Files": "n",
            "Mail_Points": "a",
            "mtime": time.ctime(),
            "Priority": 0,
            "qtime": time.ctime(),
            "Rerunable": "True",
            "Resource_List": {name: parsed(value) for name, value in job["resources"].items()},
            "Variable_List": {name: parsed(value) for name, value in job["variables"].items()},
            "project": "_pbs_project_default",
            "Submit_Host": SERVER,
        }
        if "indices" in job:
            queued, running, expired = (states.count(state) for state in "QRX")
            left = [index for index, task in job["tasks"].items() if task["state"] == "Q"]
            shown["array"] = "True"
            shown["array_state_count"] = f"Queued:{queued} Running:{running} Exiting:0 Expired:{expired} "
            shown["array_indices_submitted"] = job["indices"]
            shown["array_indices_remaining"] = parsed(",".join(left) or "-")
        else:
            shown.update(self.place(job["tasks"][""]))
        if job.get("comment"):
            shown["comment"] = job["comment"]
        return shown

    @staticmethod
    def job_state(job, states):
        if job["hold"] != "n" and "R" not in states:
            return "H"
        if "indices" in job:
            return "B" if job["started"] else "Q"
        return states[0]

    @staticmethod
    def place(task):
        if "hosts" not in task:
            return {}
        return {"exec_host": "+".join(f"{host}/0" for host in task["hosts"]),
                "exec_vnode": "+".join(f"({host}:ncpus=1)" for host in task["hosts"])}

    def shown_subjob(self, number, job, index, task):
        shown = self.shown(number, job)
        for name in ("array", "array_state_count", "array_indices_submitted", "array_indices_remaining"):
            del shown[name]
        held = job["hold"] != "n" and task["state"] == "Q"
        shown.update({"job_state": "H" if held else task["state"], "array_id": f"{number}.{SERVER}", "array_index": int(index)})
        shown.update(self.place(task))
        return shown

    def do_qmgr(self, args, _request, uid):
        (option, text), = getopt.getopt(args, "c:")[0]
        assert option == "-c"
        operation, kind, *rest = text.split(None, 3)
        names = rest[0] if rest else ""
        what = rest[1] if len(rest) > 1 else ""
        if operation == "list" and kind == "resource":
            return self.list_resources(names)
        if uid != 0:
            raise Refusal(PERMISSION, self.manager_error(names.split(",")[0], PERMISSION))
        if operation == "create" and kind == "resource":
            given = dict(part.replace(" ", "").split("=") for part in what.split(","))
            self.state["resources"][names] = given["type"]
            return ""
        if operation in ("set", "unset") and kind == "node":
            return self.set_nodes(operation, names.split(","), what)
        raise Refusal(1, f"qmgr: Illegal operation: {operation}\n")

    @staticmethod
    def manager_error(name, code):
        return f"qmgr obj={name} svr=default: {MESSAGES[code]}\nqmgr: Error ({code}) returned from server\n"

    def list_resources(self, name):
        names = [name] if name else list(self.state["resources"])
        if name and name not in self.state["resources"]:
            raise Refusal(UNKNOWN_RESOURCE, self.manager_error(name, UNKNOWN_RESOURCE))
        return "".join(f"Resource {name}\n\ttype = boolean\n\tflag = h\n\n" for name in names)

    def set_nodes(self, operation, names, what):
        attribute, _, value = what.partition("=")
        attribute, value, errors, last = attribute.strip(), value.strip(), "", 0
        for name in names:
            node = self.state["nodes"].get(name)
            resource = attribute.removeprefix("resources_available.")
            if not node:
                errors, last = errors + self.manager_error(name, UNKNOWN_NODE), UNKNOWN_NODE
            elif resource == attribute and attribute == "state":
                node["state"] = value if operation == "set" else "free"
            elif resource not in {**KNOWN_RESOURCES, **self.state["resources"]}:
                errors, last = errors + self.manager_error(name, UNKNOWN_RESOURCE), UNKNOWN_RESOURCE
            elif operation == "set":
                node["resources"][resource] = value
            else:
                node["resources"].pop(resource, None)
        if last:
            self.save()
            raise Refusal(last, errors)
        return ""

    def do_pbsnodes(self, args, _request, _uid):
        options, _ = getopt.getopt(args, "avF:")
        if ("-a", "") not in options or ("-F", "json") not in options:
            raise Refusal(2, "pbsnodes: this stand-in knows only -a -F json\n")
        shown = {}
        for name, node in self.state["nodes"].items():
            available = {"arch": "linux", "host": name, "mem": "16777216kb", "ncpus": NODE_CPUS, "vnode": name}
            available.update({resource: parsed(value) for resource, value in node["resources"].items()})
            shown[name] = {"Mom": name, "Port": 15002, "pbs_version": VERSION, "ntype": "PBS", "state": node["state"],
                           "pcpus": NODE_CPUS, "resources_available": available, "resources_assigned": {},
                           "resv_enable": "True", "sharing": "default_shared"}
        return printed({"nodes": shown})

    # The scheduler.

    def tick(self):
        with self.lock:
            changed = self.collect()
            for number, job in list(self.state["jobs"].items()):
                if job["hold"] == "n":
                    changed |= self.start_tasks(number, job)
            if changed:
                self.save()

    def collect(self):
        """Notes the end of tasks and forgets jobs without tasks."""
        changed = False
        for number, job in list(self.state["jobs"].items()):
            for index, task in job["tasks"].items():
                if task["state"] == "R" and os.path.exists(self.end_file(number, index)):
                    task["state"], changed = "X", True
            if all(task["state"] == "X" for task in job["tasks"].values()):
                del self.state["jobs"][number]
        return changed

    def end_file(self, number, index):
        return f"{self.folder}/jobs/{number}.{index}.end"

    def start_tasks(self, number, job):
        changed = False
        for index, task in job["tasks"].items():
            if task["state"] != "Q":
                continue
            hosts = self.hosts_for(job)
            if not hosts:
                comment = "Not Running: Insufficient amount of resource: vntype"
                changed |= job.get("comment") != comment
                job["comment"] = comment
                break
            task.update({"state": "R", "hosts": hosts, "pid": self.run(number, job, index, hosts)})
            job["started"], changed = True, True
            job.pop("comment", None)
        return changed

    def hosts_for(self, job):
        busy = [host for other in self.state["jobs"].values() for task in other["tasks"].values() if task["state"] == "R"
                for host in task["hosts"]]
        chosen = []
        for count, wishes in chunks(job["resources"]["select"]):
            for _ in range(count):
                fit = [name for name, node in self.state["nodes"].items()
                       if self.fits(name, node, wishes) and (busy + chosen).count(name) < NODE_CPUS and name not in chosen]
                if not fit:
                    return None
                # The node with the fewest tasks.
                chosen.append(min(fit, key=busy.count))
        return chosen

    def fits(self, name, node, wishes):
        if node["state"] != "free":
            return False
        for resource, value in wishes.items():
            if resource in ("host", "vnode") and value != name:
                return False
            if self.state["resources"].get(resource) == "boolean":
                # A boolean that is not set is false.
                if (node["resources"].get(resource, "False").lower() == "true") != (value.lower() == "true"):
                    return False
        return True

    def run(self, number, job, index, hosts):
        user = pwd.getpwuid(job["uid"])
        base = f"{self.folder}/jobs/{number}.{index}"
        with open(base + ".script", "w", encoding="utf-8") as file:
            file.write(job["script"])
        with open(base + ".nodes", "w", encoding="utf-8") as file:
            file.writelines(host + "\n" for host in hosts)
        name = number.replace("[]", f"[{index}]")
        env = {**job["variables"], "PBS_JOBID": f"{name}.{SERVER}", "PBS_NODEFILE": base + ".nodes", "PBS_ENVIRONMENT": "PBS_BATCH",
               "HOME": user.pw_dir, "PATH": "/usr/bin:/bin"}
        if index:
            env["PBS_ARRAY_INDEX"] = index
            env["PBS_ARRAY_ID"] = f"{number}.{SERVER}"
        user_words = ["setpriv", f"--reuid={job['uid']}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
        words = [*self.nodes[hosts[0]], "sh", "-c", '"$@"; echo "$?" >"$0"', self.end_file(number, index), *user_words, "sh",
                 base + ".script"]
        with open(base + ".output", "wb") as output:
            child = subprocess.Popen(words, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     start_new_session=True)
        return child.pid

    def serve(self):
        path = f"{self.folder}/socket"
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen(100)
        threading.Thread(target=self.schedule, daemon=True).start()
        threading.Thread(target=end_with_test, daemon=True).start()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.serve_one, args=(connection,), daemon=True).start()

    def schedule(self):
        while True:
            self.tick()
            time.sleep(TICK_SECONDS)

    def serve_one(self, connection):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        with connection, connection.makefile("rw", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(json.dumps(self.answer(json.loads(stream.readline()), uid)) + "\n")


def end_with_test():
    """Ends the server if its test ends, even by a signal: then the pipe to it is closed."""
    sys.stdin.buffer.read()
    os._exit(0)


def script_of(argv):
    """Reads the script of a qsub, as qsub does before it asks the server."""
    if argv[0] != "qsub" or "--" in argv:
        return None, None
    try:
        _, operands = getopt.getopt(argv[1:], QSUB_OPTIONS)
    except getopt.GetoptError:
        return None, None
    if not operands or operands[0] == "-":
        return sys.stdin.read(), "STDIN"
    with open(operands[0], encoding="utf-8", errors="surrogateescape") as file:
        return file.read(), os.path.basename(operands[0])


def main():
    folder, argv = sys.argv[1], sys.argv[2:]
    if argv == ["server"]:
        # One server at a time.
        lock = open(f"{folder}/lock", "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.makedirs(f"{folder}/jobs", exist_ok=True)
        Server(folder).serve()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{folder}/socket")
    except OSError as error:
        if argv[0] != "qmgr":
            print("Connection refused", file=sys.stderr)
        print(f"{argv[0]}: cannot connect to server {SERVER} (errno={error.errno})", file=sys.stderr)
        sys.exit(error.errno)
    script, name = script_of(argv)
    request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd(), "script": script, "script_name": name}
    with connection.makefile("rw", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        answer = json.loads(stream.readline())
    sys.stdout.write(answer["out"])
    sys.stderr.write(answer["err"])
    sys.exit(answer["code"])


if __name__ == "__main__":
    main()
