"""What python/lowtide_sim promises to Python programs; the names of the tests are the specification.

    LOWTIDE_SIM_LIBRARY=build/release/lib/liblowtide_sim.so .venv/bin/python tests/python/sim_door_test.py
"""

import copy
import gc
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import lowtide_sim  # noqa: E402

MIB = 1 << 20
SMALL_CARD = {"name": "small", "total_bytes": 64 * MIB, "context_bytes": 4 * MIB}


def run_python(code, **environment):
    """What a fresh process prints, both streams together."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    done = subprocess.run([sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def refusal(call, *args):
    """The message of the error that a call ends with."""
    try:
        call(*args)
    except RuntimeError as error:
        return str(error)
    return "accepted"


class Opening(unittest.TestCase):
    def test_loading_twice_gives_the_same_module(self):
        self.assertIs(lowtide_sim.load(), torch.sim)
        self.assertIs(lowtide_sim.load(os.environ.get("LOWTIDE_SIM_LIBRARY")), torch.sim)
        self.assertIs(sys.modules["torch.sim"], torch.sim)
        self.assertEqual(torch._C._get_privateuse1_backend_name(), "sim")

    def test_another_library_is_refused_once_one_is_loaded(self):
        with tempfile.NamedTemporaryFile() as other:
            self.assertIn("is loaded already", refusal(lowtide_sim.load, other.name))

    def test_a_missing_library_is_one_line_that_says_what_to_do(self):
        code = "import lowtide_sim\ntry: lowtide_sim.load()\nexcept lowtide_sim.SimError as error: print(error)"
        printed = run_python(code, LOWTIDE_SIM_LIBRARY="/no/such/library.so")
        self.assertRegex(printed, r"^LOWTIDE_SIM_LIBRARY is /no/such/library.so, which does not exist: run tools/build\n$")

    def test_another_torch_is_one_line_that_says_what_to_do(self):
        code = "import torch; torch.__version__ = '2.9.1'; import lowtide_sim\n"
        code += "try: lowtide_sim.load()\nexcept lowtide_sim.SimError as error: print(error)"
        self.assertRegex(run_python(code), r"^lowtide is built against torch 2\.11, this is 2\.9\.1: [^\n]*\n$")

    def test_another_backend_in_the_way_is_one_line(self):
        code = "import torch; torch.utils.rename_privateuse1_backend('other'); import lowtide_sim\n"
        code += "try: lowtide_sim.load()\nexcept lowtide_sim.SimError as error: print(error)"
        self.assertRegex(run_python(code), r"^this process uses device 'other' already[^\n]*\n$")

    def test_cards_come_as_size_name_dict_text_or_file(self):
        def total():
            return torch.sim.mem_get_info()[1]

        lowtide_sim.open("6GiB")
        self.assertEqual((total(), torch.sim.get_device_name()), (6 << 30, "6GiB"))
        lowtide_sim.open("1.5GB")
        self.assertEqual(total(), 1_500_000_000)
        lowtide_sim.open(SMALL_CARD)
        self.assertEqual((total(), torch.sim.get_device_name()), (64 * MIB, "small"))
        lowtide_sim.open(json.dumps({"total_bytes": 32 * MIB}))
        self.assertEqual(total(), 32 * MIB)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(SMALL_CARD, file)
            file.flush()
            lowtide_sim.open(file.name)
            self.assertEqual(total(), 64 * MIB)
        lowtide_sim.open()
        self.assertEqual((total(), torch.sim.get_device_name()), (8 << 30, "default"))

    def test_every_card_that_comes_along_opens(self):
        names = [file.stem for file in (ROOT / "configs" / "cards").glob("*.json")]
        self.assertIn("default", names)
        for name in names:
            with self.subTest(name):
                lowtide_sim.open(name)
                self.assertEqual(torch.sim.get_device_name(), name)

    def test_bad_cards_are_one_line(self):
        for card, what in [("no_such_card", "use a name"), ("6 gigs", "is no number with"), ('{"total_bytes": }', "no JSON object"),
                           ({"memory": 3}, "'memory' is not a key"), ({"total_bytes": -1}, "total_bytes")]:
            with self.subTest(card):
                message = refusal(lowtide_sim.open, card)
                self.assertIn(what, message)
                self.assertEqual(message.count("\n"), 0)

    def test_a_card_in_use_is_not_replaced(self):
        lowtide_sim.open("6GiB")
        kept = torch.ones(4, device="sim")
        self.assertIn("while 1 allocations live", refusal(lowtide_sim.open, "5GiB"))
        lowtide_sim.open("6GiB")  # it is that card already
        del kept
        lowtide_sim.open("5GiB")


class OnCard(unittest.TestCase):
    """A small card with a context, empty before and after each test."""

    def setUp(self):
        gc.collect()
        lowtide_sim.open(SMALL_CARD)
        lowtide_sim.reset()

    def tearDown(self):
        gc.collect()
        torch.sim.synchronize()
        self.assertEqual(torch.sim.memory_allocated(), 0)
        self.assertEqual(lowtide_sim.stats()["used_bytes"], SMALL_CARD["context_bytes"])


class Counters(OnCard):
    def test_stats_count_copies_time_and_memory_with_the_context(self):
        host = torch.ones(MIB // 4)
        card = host.to("sim")
        card.add_(1)
        card.cpu()
        stats = lowtide_sim.stats()
        self.assertEqual((stats["h2d_bytes"], stats["h2d_copies"], stats["d2h_bytes"]), (MIB, 1, MIB))
        self.assertEqual(stats["used_bytes"], 5 * MIB)
        self.assertLessEqual(5 * MIB, stats["peak_bytes"])
        self.assertLess(stats["peak_bytes"], 6 * MIB)  # the number that is added lives on the card for a moment
        self.assertGreater(stats["modelled_s"], stats["link_s"])
        self.assertGreater(stats["compute_s"], 0)

    def test_reset_zeroes_counters_and_keeps_memory(self):
        card = torch.ones(MIB // 4).to("sim") + 1
        lowtide_sim.reset()
        stats = lowtide_sim.stats()
        self.assertEqual((stats["h2d_bytes"], stats["modelled_s"], stats["compute_s"]), (0, 0, 0))
        self.assertEqual(stats["peak_bytes"], 5 * MIB)
        self.assertEqual(card[0].item(), 2)

    def test_two_equal_runs_take_the_same_modelled_time(self):
        layer, x = nn.Linear(64, 64).to("sim"), torch.ones(8, 64)
        times = []
        for _ in range(2):
            lowtide_sim.reset()
            layer(x.to("sim")).cpu()
            times.append(lowtide_sim.stats()["modelled_s"])
        self.assertEqual(times[0], times[1])


class DeviceModule(OnCard):
    def test_there_is_one_device_and_it_is_always_current(self):
        self.assertEqual((torch.sim.device_count(), torch.sim.current_device()), (1, 0))
        self.assertTrue(torch.sim.is_available() and torch.sim.is_initialized())
        self.assertFalse(torch.sim._is_in_bad_fork())
        torch.sim.init()
        torch.sim._lazy_init()
        for device in (0, "sim", "sim:0", torch.device("sim", 0)):
            torch.sim.set_device(device)
            with torch.sim.device(device):
                self.assertEqual(torch.sim.current_device(), 0)
        self.assertIn("no device sim:1", refusal(torch.sim.set_device, 1))
        with self.assertRaises(ValueError):
            torch.sim.set_device("cpu")
        with torch.sim.device_of(torch.ones(1)):
            pass

    def test_it_is_the_accelerator_of_the_process(self):
        self.assertEqual(torch.accelerator.current_accelerator().type, "sim")
        self.assertIs(torch.get_device_module(), torch.sim)
        self.assertIs(torch.get_device_module("sim:0"), torch.sim)

    def test_tensors_modules_and_storages_have_the_methods_of_a_device(self):
        self.assertTrue(torch.ones(2).sim().is_sim)
        self.assertFalse(torch.ones(2).is_sim)
        self.assertEqual(nn.Linear(2, 2).sim().weight.device.type, "sim")
        self.assertEqual(torch.ones(2).untyped_storage().sim().device.type, "sim")
        packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
        self.assertTrue(packed.sim().is_sim)
        with torch.device("sim"):
            self.assertTrue(torch.zeros(2).is_sim)

    def test_memory_is_counted_without_the_context(self):
        kept = torch.empty(MIB, dtype=torch.uint8, device="sim")
        gone = torch.empty(2 * MIB, dtype=torch.uint8, device="sim")
        del gone
        self.assertEqual((torch.sim.memory_allocated(), torch.sim.max_memory_allocated()), (MIB, 3 * MIB))
        self.assertEqual(torch.sim.mem_get_info(), (64 * MIB - 5 * MIB, 64 * MIB))
        torch.sim.reset_peak_memory_stats()
        self.assertEqual(torch.sim.max_memory_allocated(0), MIB)
        self.assertEqual(torch.sim.memory_reserved(), 3 * MIB)
        torch.sim.empty_cache()
        self.assertEqual((torch.sim.memory_reserved("sim"), torch.sim.max_memory_reserved()), (MIB, 3 * MIB))
        self.assertEqual(torch.sim.memory_stats()["allocated_bytes.all.current"], MIB)
        self.assertEqual(torch.sim.get_device_properties().total_memory, 64 * MIB)
        torch.sim.reset_accumulated_memory_stats()
        torch.sim.ipc_collect()
        del kept

    def test_more_than_the_card_holds_is_an_out_of_memory_error(self):
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(61 * MIB, dtype=torch.uint8, device="sim")
        self.assertTrue(torch.empty(60 * MIB, dtype=torch.uint8, device="sim").is_sim)

    def test_streams_can_be_made_entered_and_waited_for(self):
        default = torch.sim.current_stream()
        self.assertEqual(default, torch.sim.default_stream())
        stream = torch.sim.Stream()
        self.assertIsInstance(stream, torch.sim.Stream)
        self.assertNotEqual(stream, torch.sim.Stream())
        for context in (torch.sim.stream(stream), torch.sim.StreamContext(stream)):
            with context:
                self.assertEqual(torch.sim.current_stream(), stream)
            self.assertEqual(torch.sim.current_stream(), default)
        with torch.sim.stream(None):
            self.assertEqual(torch.sim.current_stream(), default)
        torch.sim.set_stream(stream)
        self.assertIsInstance(torch.sim.current_stream(), torch.sim.Stream)
        torch.sim.set_stream(default)
        stream.wait_stream(default)
        default.wait_event(stream.record_event())
        stream.synchronize()
        self.assertTrue(stream.query())
        torch.sim.synchronize()

    def test_a_stream_context_is_left_also_by_an_exception(self):
        default = torch.sim.current_stream()
        with self.assertRaises(KeyError), torch.sim.stream(torch.sim.Stream()):
            raise KeyError
        self.assertEqual(torch.sim.current_stream(), default)

    def test_events_measure_the_modelled_time(self):
        start, end = torch.sim.Event(enable_timing=True), torch.sim.Event(enable_timing=True)
        x = torch.ones(256, 256, device="sim")
        start.record()
        y = x @ x
        end.record()
        end.synchronize()
        self.assertTrue(end.query())
        self.assertGreater(start.elapsed_time(end), 0)
        self.assertIn("cannot cross processes", refusal(lambda: torch.sim.Event(interprocess=True)))
        del x, y

    def test_a_copy_from_pinned_memory_arrives_when_its_stream_has_been_waited_for(self):
        host = torch.arange(1000.0).pin_memory()
        self.assertTrue(host.is_pinned())
        stream = torch.sim.Stream()
        with torch.sim.stream(stream):
            card = host.to("sim", non_blocking=True)
        torch.sim.current_stream().wait_stream(stream)
        card.record_stream(torch.sim.current_stream())
        self.assertTrue(torch.equal((card + 0).cpu(), host))
        torch.sim.synchronize()

    def test_random_numbers_are_those_of_the_cpu_generator(self):
        torch.manual_seed(7)
        expected = torch.rand(5)
        for seed in (torch.manual_seed, torch.sim.manual_seed, torch.sim.manual_seed_all):
            seed(7)
            self.assertTrue(torch.equal(torch.rand(5, device="sim").cpu(), expected))
        torch.sim.manual_seed(7)
        self.assertEqual(torch.sim.initial_seed(), 7)
        states = torch.sim.get_rng_state(), torch.sim.get_rng_state_all()
        torch.rand(3)
        torch.sim.set_rng_state(states[0])
        self.assertTrue(torch.equal(torch.rand(5, device="sim").cpu(), expected))
        torch.sim.set_rng_state_all(states[1])
        with torch.random.fork_rng(device_type="sim"):
            torch.rand(3, device="sim")
        self.assertTrue(torch.equal(torch.rand(5, device="sim").cpu(), expected))
        torch.sim.seed()
        torch.sim.seed_all()

    def test_tensors_on_the_card_can_be_saved_loaded_copied_and_printed(self):
        file = io.BytesIO()
        torch.save({"x": torch.arange(4.0, device="sim")}, file)
        for place in (None, "cpu", "sim"):
            file.seek(0)
            loaded = torch.load(file, map_location=place)["x"]
            self.assertEqual(loaded.device.type, "cpu" if place == "cpu" else "sim")
            self.assertEqual(loaded.tolist(), [0, 1, 2, 3])
        self.assertTrue(copy.deepcopy(nn.Linear(2, 2).sim()).weight.is_sim)
        self.assertEqual(repr(torch.ones(2, device="sim")), "tensor([1., 1.], device='sim:0')")
        del loaded

    def test_autocast_casts_if_the_library_knows_how_and_else_warns(self):
        self.assertTrue(torch.sim.is_bf16_supported())
        layer, x = nn.Linear(2, 2).sim(), torch.ones(2, 2, device="sim")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.no_grad(), torch.autocast("sim", dtype=torch.bfloat16):
                y = layer(x)
        if torch.bfloat16 in torch.sim.get_amp_supported_dtype():
            self.assertEqual(y.dtype, torch.bfloat16)
        else:
            self.assertEqual(y.dtype, torch.float32)
            self.assertIn("Disabling autocast", str(caught[0].message))

    def test_operands_on_two_devices_are_refused(self):
        x = torch.ones(2, device="sim")
        self.assertIn("sim:0 and cpu", refusal(lambda: x + torch.ones(2)))

    def test_data_may_move_between_host_and_card_under_a_parameter(self):
        parameter = nn.Parameter(torch.ones(3), requires_grad=False)
        host = parameter.data
        parameter.data = host.to("sim")  # what offloading tools do
        self.assertTrue(parameter.is_sim)
        parameter.data = host
        self.assertEqual(parameter.device.type, "cpu")


class Tiny(nn.Module):
    """Embedding, blocks of attention and feed-forward, head."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            return x + self.out(F.gelu(F.scaled_dot_product_attention(q, k, v)))

    def __init__(self, width=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Tiny.Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 100)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return unittest.skipIf(missing, f"{package} is not installed (third_party/requirements-peers.txt)")


class OffloadingTools(OnCard):
    """accelerate and diffusers run unchanged, give the CPU's bits, and take no more than what they promise."""

    def check(self, offload):
        torch.manual_seed(0)
        model = Tiny().eval().requires_grad_(False)
        ids = torch.arange(40).view(2, 20)
        with torch.no_grad():
            expected = model(ids)
            offloaded = offload(copy.deepcopy(model))
            for _ in range(3):
                self.assertTrue(torch.equal(offloaded(ids.to("sim")).cpu(), expected))
                torch.sim.synchronize()
                self.assertEqual(lowtide_sim.stats()["used_bytes"], SMALL_CARD["context_bytes"])
        weights = sum(parameter.nbytes for parameter in model.parameters())
        self.assertGreaterEqual(lowtide_sim.stats()["h2d_bytes"], 3 * weights)

    def groups(self, **options):
        from diffusers.hooks import apply_group_offloading

        def offload(model):
            apply_group_offloading(model, onload_device=torch.device("sim"), offload_device=torch.device("cpu"), **options)
            return model

        self.check(offload)

    @needs("accelerate")
    def test_accelerate_cpu_offload(self):
        from accelerate import cpu_offload

        self.check(lambda model: cpu_offload(model, execution_device=torch.device("sim", 0)))

    @needs("accelerate")
    def test_accelerate_finds_the_memory_of_the_card(self):
        from accelerate import dispatch_model

        places = {"embed": 0, "blocks.0": 0, "blocks.1": "cpu", "blocks.2": "cpu", "head": 0}
        places = {name: "sim" if place == 0 else place for name, place in places.items()}
        model = Tiny().eval().requires_grad_(False)
        ids = torch.arange(40).view(2, 20)
        with torch.no_grad():
            expected = model(ids)
            model = dispatch_model(model, places, main_device="sim")
            self.assertTrue(torch.equal(model(ids).cpu(), expected))

    @needs("diffusers")
    def test_diffusers_block_groups(self):
        self.groups(offload_type="block_level", num_blocks_per_group=2)

    @needs("diffusers")
    def test_diffusers_block_groups_with_a_stream(self):
        self.groups(offload_type="block_level", num_blocks_per_group=1, use_stream=True)

    @needs("diffusers")
    def test_diffusers_leaf_groups(self):
        self.groups(offload_type="leaf_level")

    @needs("diffusers")
    def test_diffusers_leaf_groups_with_a_stream(self):
        self.groups(offload_type="leaf_level", use_stream=True)

    @needs("diffusers")
    def test_diffusers_leaf_groups_with_a_stream_and_recorded_use(self):
        self.groups(offload_type="leaf_level", use_stream=True, record_stream=True)


if __name__ == "__main__":
    unittest.main()
