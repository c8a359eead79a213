"""A private Slurm cluster of three nodes, all of them this machine, without touching a configuration of the machine.

Needs root and the distribution's packages munge, slurmctld, slurmd and slurm-client.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess

from conftest import run, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sinfo")
NODES = 3


def is_installed() -> bool:
    path = f"{os.environ['PATH']}:/usr/sbin"
    return os.geteuid() == 0 and all(shutil.which(name, path=path) for name in PROGRAMS)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """Starts the daemons; `environment` makes Slurm's commands use them."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        # munged refuses folders that others could write to.
        for name in ("munge", "state"):
            (folder / name).mkdir(mode=0o755)
        folder.chmod(0o755)
        self.config = folder / "slurm.conf"
        self.environment = os.environ | {
            "SLURM_CONF": str(self.config),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        self.daemons: list[subprocess.Popen] = []
        host = socket.gethostname()
        control, *ports = free_ports(NODES + 1)
        key = folder / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}",
            f"SlurmctldPort={control}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/socket",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "ReturnToService=2",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            *(f"NodeName=n{i} NodeHostname={host} Port={port} CPUs=1" for i, port in enumerate(ports)),
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        ]
        self.config.write_text("\n".join(lines) + "\n")
        munge = ("key", "socket", "pid", "log", "seed")
        flags = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        files = [f"--{flag}={folder}/munge/{name}" for flag, name in zip(flags, munge, strict=True)]
        try:
            self.start("munged", "--foreground", "--force", *files)
            wait_until("munged", (folder / "munge/socket").exists)
            self.start("slurmctld", "-D", "-f", str(self.config))
            for i in range(NODES):
                self.start("slurmd", "-D", "-N", f"n{i}", "-f", str(self.config))
            wait_until("idle nodes", lambda: self.idle_nodes() == NODES)
        except BaseException:
            self.stop()
            raise

    def start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}-{len(self.daemons)}.out").open("w") as log:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    def idle_nodes(self) -> int:
        words = ["sinfo", "--noheader", "--format=%D", "--states=idle"]
        ended = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        return sum(map(int, ended.stdout.split()))

    def cancel(self) -> None:
        """Ends jobs that a failed test left behind."""
        run("scancel", "--user", "root", env=self.environment)
        wait_until("the end of all jobs", lambda: self.idle_nodes() == NODES)

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            daemon.wait(60)
