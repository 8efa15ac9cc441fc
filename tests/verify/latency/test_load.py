"""Whose load it is: our own part as the kernel averages it, and processes as /proc shows them."""

import math
import os

import pytest

from vela.verify.latency import load, machine, processes

OURS = processes.Process(os.getpid(), 1)
LISTENING = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0\n"
ESTABLISHED = "   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 778 1 0\n"


class World:
    """A machine whose time, load and processes a test sets."""

    def __init__(self):
        self.now, self.load, self.runnable_s = 0.0, 0.0, 0.0
        self.meter = load.Meter(lambda: self.load, lambda servers: self.runnable_s, lambda: self.now)

    def after(self, seconds, *, busy, load, servers=()):
        self.now, self.runnable_s, self.load = self.now + seconds, self.runnable_s + busy * seconds, load
        return self.meter.measure(servers)


def test_at_first_all_load_is_others():
    world = World()
    world.load = 3.0

    assert world.meter.measure([]).others == 3.0


def test_our_own_part_grows_and_falls_as_the_kernels_average_does():
    world = World()
    world.meter.measure([])
    during = world.after(60.0, busy=2.0, load=2.0 * (1 - math.exp(-1)))
    after = world.after(60.0, busy=0.0, load=during.one_minute * math.exp(-1))

    assert during.own == pytest.approx(2.0 * (1 - math.exp(-1)))
    assert during.others == pytest.approx(0.0, abs=1e-9)
    assert after.own == pytest.approx(2.0 * (1 - math.exp(-1)) * math.exp(-1))
    assert after.others == pytest.approx(0.0, abs=1e-9)


def test_what_others_add_meanwhile_is_left():
    world = World()
    world.meter.measure([])

    found = world.after(600.0, busy=2.0, load=5.0)

    assert found.others == pytest.approx(3.0, abs=1e-3)


def test_a_server_that_is_new_is_counted_from_the_next_look_on():
    world = World()
    server = processes.Process(1, 5)
    world.meter.measure([])
    seen = world.after(600.0, busy=4.0, load=4.0, servers=[server])
    later = world.after(600.0, busy=1.0, load=4.0, servers=[server])

    assert seen.own == 0.0
    assert later.own == pytest.approx(1.0, abs=1e-3)


def test_where_no_load_is_to_be_had_nothing_disturbs():
    assert load.Load(None, 0.0).others == 0.0


def test_this_machine_can_be_measured():
    meter = load.Meter.of_this_machine()

    found = [meter.measure([]), meter.measure([processes.Process(os.getppid(), 1)])]

    assert all(one.one_minute is not None and one.own >= 0.0 for one in found)


def make_proc(folder, tasks, parent=1, start=50, sockets=()):
    """Write one process as /proc shows it; its name has what a careless reader trips over."""
    folder.mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 17, str(start), "0"]
    (folder / "stat").write_text(f"{folder.name} (a) b (c) {' '.join(fields)}")
    for number, (ran_ns, waited_ns) in enumerate(tasks):
        (folder / "task" / str(number)).mkdir(parents=True)
        (folder / "task" / str(number) / "schedstat").write_text(f"{ran_ns} {waited_ns} 7\n")
    (folder / "fd").mkdir()
    for number, inode in enumerate(sockets):
        (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


@pytest.fixture
def proc(tmp_path):
    make_proc(tmp_path / "10", [(2_000_000_000, 500_000_000), (1_000_000_000, 0)], start=50, sockets=[777])
    make_proc(tmp_path / "11", [(4_000_000_000, 0)], parent=10, start=60, sockets=[777])
    make_proc(tmp_path / "12", [(0, 250_000_000)], parent=11, start=70)
    make_proc(tmp_path / "13", [(9_000_000_000, 0)], start=40, sockets=[778])
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text("  sl  local_address ...\n" + LISTENING + ESTABLISHED)
    return tmp_path


def test_the_listening_process_is_the_oldest_that_holds_the_socket(proc):
    assert processes.Process.from_port(0x1F90, proc) == processes.Process(10, 50)


def test_a_port_that_is_only_connected_is_nobodys(proc):
    assert processes.Process.from_port(0x1F91, proc) is None
    assert processes.Process.from_port(9, proc) is None


def test_threads_of_children_count_and_each_once(proc):
    roots = [processes.Process(10, 50), processes.Process(11, 60)]

    assert processes.runnable_s(roots[:1], proc) == 2.5 + 1.0 + 4.0 + 0.25
    assert processes.runnable_s(roots, proc) == 2.5 + 1.0 + 4.0 + 0.25


def test_what_is_gone_or_cannot_be_read_is_unknown(proc, tmp_path):
    (proc / "10" / "stat").write_text("")

    assert processes.Process.from_pid(10, proc) is None
    assert processes.Process.from_pid(99, proc) is None
    assert processes.runnable_s([processes.Process(99, 1)], proc) == 0.0
    assert processes.Process.from_port(80, tmp_path / "none") is None


@pytest.mark.parametrize(("cores", "expected"), [([0], "0"), ([0, 1, 2], "0-2"), ([5, 0, 1, 8], "0-1,5,8"), ([], "")])
def test_a_cpuset_is_written_as_linux_does(cores, expected):
    assert machine.cpuset(cores) == expected


def test_a_machine_is_described():
    found = machine.describe()

    assert found["cpuset"]
    assert int(found["cores"]) >= 1
    assert all(isinstance(value, str) for value in found.values())
