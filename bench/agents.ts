/**
 * Cost of the agent server: measures, in one execution and in turns, the open reference server, Runlake on embedded
 * engines, and a floor, which is the same graph in one thread with the product's saver on the same Postgres.
 *
 * A graph with one node that writes 100 custom events, each run on its own thread, read over plain HTTP. 32 concurrent:
 * runs a second as a share of the floor (0.5) and as a multiple of the reference (4). Alone: time of a whole run (1/20
 * of the reference) and to the first event (1/8). 5,000 events a run, 32 concurrent: events a second (3 times). Then
 * Runlake alone: memory of 1,000 idle open streams (100 MiB), and its memory in the last tenth of 20,000 runs
 * against the second (1.1). `ratio` is that of the target with the worst result. `--quick` only checks that the bench
 * works.
 */
import type { MeasuredServer } from './agents/agent-server.ts';
import { openFloor } from './agents/floor.ts';
import { idleStreamsMib } from './agents/idle-streams.ts';
import { type LoadResult, loadServer } from './agents/load.ts';
import { planOf } from './agents/plan.ts';
import { untilQuiet } from './agents/quiet.ts';
import { startReference } from './agents/reference-server.ts';
import { startRunlakeAgents } from './agents/runlake-server.ts';
import { memoryOverRuns } from './agents/steady-memory.ts';
import { againstTargets, atLeast, atMost } from './agents/targets.ts';
import { median, mediansOf, printFigures, quantile, round } from './figures.ts';
import { started } from './started.ts';

const plan = planOf(process.argv.slice(3));
const clients = 32;
const events = 100;

const reference = await started(startReference(), (server) => server.end());
const runlake = await started(startRunlakeAgents(), (server) => server.end());
const floor = await started(openFloor(runlake.databaseUrl), (opened) => opened.end());
// Warm-up: the JIT compilers have finished, so the measurement shows the steady state.
for (const server of [reference, runlake]) await loadServer(server, { runs: plan.warmUp, atOnce: clients, events });
await floor.run({ runs: plan.warmUp, atOnce: clients, events });
const idleMib = await idleStreamsMib(runlake, plan.idleStreams);

const atOnce = await inTurns(plan.atOnce, clients, events, async (runs) => {
  await untilQuiet();
  return floor.run({ runs, atOnce: clients, events });
});
const alone = await inTurns(plan.alone, 1, events);
const large = await inTurns(plan.large, clients, plan.largeEvents);
const memory = await memoryOverRuns(runlake, plan.memoryRuns);

printFigures({
  bench: 'agents',
  ...againstTargets({
    share_of_floor: atLeast(
      0.5,
      over(atOnce, ({ product, floor }) => perSecond(product) / floor),
    ),
    times_reference: atLeast(
      4,
      over(atOnce, ({ product, other }) => perSecond(product) / perSecond(other)),
    ),
    alone_full_run_share: atMost(
      1 / 20,
      over(alone, ({ product, other }) => fullMs(product) / fullMs(other)),
    ),
    alone_first_event_share: atMost(
      1 / 8,
      over(alone, ({ product, other }) => firstMs(product) / firstMs(other)),
    ),
    events_times_reference: atLeast(
      3,
      over(large, ({ product, other }) => perSecond(product) / perSecond(other)),
    ),
    idle_streams_mib: atMost(100, idleMib),
    memory_last_to_second_tenth: atMost(1.1, memory.at(-1)! / memory[1]!),
  }),
  runs_per_second: over(atOnce, ({ product }) => perSecond(product)),
  reference_runs_per_second: over(atOnce, ({ other }) => perSecond(other)),
  floor_runs_per_second: over(atOnce, ({ floor }) => floor),
  p99_ms_of_32: over(atOnce, ({ product }) => quantile(times(product), 0.99)),
  alone_p50_ms: over(alone, ({ product }) => fullMs(product)),
  alone_first_event_p50_ms: over(alone, ({ product }) => firstMs(product)),
  reference_alone_p50_ms: over(alone, ({ other }) => fullMs(other)),
  reference_alone_first_event_p50_ms: over(alone, ({ other }) => firstMs(other)),
  events_per_second: over(large, ({ product }) => perSecond(product) * plan.largeEvents),
  reference_events_per_second: over(large, ({ other }) => perSecond(other) * plan.largeEvents),
  memory_mib_by_tenth: memory.map((mib) => round(mib, 0)),
  reference_memory_mib: round(reference.memoryMib(), 0),
  plan,
});

interface Turn {
  readonly product: LoadResult;
  readonly other: LoadResult;
  readonly floor: number;
}

/** Measures reference, Runlake and the floor, if there is one, one after the other for the planned number of rounds. */
async function inTurns(
  runs: { readonly product: number; readonly reference: number },
  clientsAtOnce: number,
  eventsEach: number,
  floorOf: (runs: number) => Promise<number> = async () => Number.NaN,
): Promise<Turn[]> {
  const load = async (server: MeasuredServer, count: number) => {
    await untilQuiet();
    return loadServer(server, { runs: count, atOnce: clientsAtOnce, events: eventsEach });
  };
  const results: Turn[] = [];
  for (let round = 0; round < plan.rounds; round += 1) {
    const other = await load(reference, runs.reference);
    const product = await load(runlake, runs.product);
    results.push({ other, product, floor: await floorOf(runs.product) });
  }
  return results;
}

function over(results: readonly Turn[], figure: (turn: Turn) => number): number {
  return mediansOf(results, 4)(figure);
}

function perSecond({ runsPerSecond }: LoadResult): number {
  return runsPerSecond;
}

function times({ runs }: LoadResult): number[] {
  return runs.map(({ fullMs }) => fullMs);
}

function fullMs(result: LoadResult): number {
  return median(times(result));
}

function firstMs({ runs }: LoadResult): number {
  return median(runs.map((run) => run.firstMs));
}
