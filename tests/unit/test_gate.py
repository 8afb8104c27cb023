"""Places behind a gate: bounded, in order, never lost."""

from __future__ import annotations

import asyncio
import random
import threading

from runner.calls.gate import Gate


def test_no_more_than_the_limit_are_inside_and_the_rest_come_in_order():
    async def main():
        gate, order, peak = Gate(2), [], 0

        async def call(number):
            nonlocal peak
            place = await gate.enter(10)
            order.append(number)
            peak = max(peak, gate.used)
            await asyncio.sleep(0)
            place.leave()

        await asyncio.gather(*map(call, range(20)))
        assert order == list(range(20))
        assert peak == 2
        assert (gate.used, gate.waiting) == (0, 0)

    asyncio.run(main())


def test_a_full_gate_is_none_after_the_wait():
    async def main():
        gate = Gate(1)
        place = await gate.enter(0)
        assert await gate.enter(0) is None
        assert await gate.enter(0.01) is None
        assert gate.try_enter() is None
        place.leave()
        assert gate.try_enter() is not None
        assert gate.waiting == 0

    asyncio.run(main())


def test_leaving_twice_frees_one_place():
    async def main():
        gate = Gate(2)
        one, two = await gate.enter(0), await gate.enter(0)
        one.leave()
        one.leave()
        assert gate.used == 1
        two.leave()
        assert gate.used == 0

    asyncio.run(main())


def test_nobody_overtakes_those_who_wait():
    async def main():
        gate = Gate(1)
        first = await gate.enter(0)
        second = asyncio.create_task(gate.enter(10))
        await asyncio.sleep(0)
        assert gate.waiting == 1
        first.leave()
        assert gate.try_enter() is None
        assert await second is not None

    asyncio.run(main())


def test_a_place_is_given_back_from_another_thread():
    async def main():
        gate = Gate(1)
        place = await gate.enter(0)
        thread = threading.Thread(target=place.leave)
        thread.start()
        assert await gate.enter(10) is not None
        thread.join()

    asyncio.run(main())


def test_who_gives_up_waiting_takes_no_place():
    async def main():
        gate = Gate(1)
        place = await gate.enter(0)
        waiter = asyncio.create_task(gate.enter(10))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert (gate.used, gate.waiting) == (1, 0)
        place.leave()
        assert gate.used == 0

    asyncio.run(main())


def test_a_place_that_comes_with_the_cancel_goes_to_the_next():
    async def main():
        gate = Gate(1)
        place = await gate.enter(0)
        waiters = [asyncio.create_task(gate.enter(10)) for _ in range(2)]
        await asyncio.sleep(0)
        place.leave()
        waiters[0].cancel()
        assert await waiters[1] is not None
        assert gate.used == 1

    asyncio.run(main())


def test_nothing_is_lost_when_calls_are_cancelled_at_random():
    async def main(seed):
        rng, gate, inside = random.Random(seed), Gate(3), 0

        async def call():
            nonlocal inside
            place = await gate.enter(rng.choice([0, 0.001, 1]))
            if place is None:
                return
            inside += 1
            assert inside <= 3
            try:
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                inside -= 1
                place.leave()

        tasks = [asyncio.create_task(call()) for _ in range(40)]
        for task in rng.sample(tasks, 15):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (gate.used, gate.waiting) == (0, 0)

    for seed in range(30):
        asyncio.run(main(seed))
