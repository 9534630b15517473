/**
 * Cost of the agent server with Kafka: the time of a single run, of a graph with one node that writes 100 custom
 * events, as a share of the time of the open reference server. Both are measured in turns.
 *
 * Two processes `runlake agents` and one `runlake ingest` on a separate stack. All requests go to the first process;
 * whichever of the two claims a run first executes it, and its events come back through Kafka.
 */
import type { MeasuredServer } from './agents/agent-server.ts';
import { agentsAt, untilItAnswers } from './agents/agents-at.ts';
import { type LoadResult, loadServer } from './agents/load.ts';
import { runlakeMemoryMib } from './agents/process-tree.ts';
import { startReference } from './agents/reference-server.ts';
import { againstTargets, atMost } from './agents/targets.ts';
import { median, mediansOf, printFigures, round } from './figures.ts';
import { withStack } from './stack.ts';
import { startBenchRole, started } from './started.ts';

const quick = process.argv.includes('--quick');
const turns = quick ? 1 : 3;
const runs = quick ? { product: 5, reference: 2 } : { product: 60, reference: 15 };
const events = 100;

await withStack(async ({ environment, apiKey }) => {
  await startBenchRole('ingest', environment);
  const [first, second] = [await agentsAt(), await agentsAt()];
  const roles = [
    await startBenchRole('agents', { ...environment, ...first.environment }),
    await startBenchRole('agents', { ...environment, ...second.environment }),
  ] as const;
  const reference = await started(startReference(), (server) => server.end());
  const runlake: MeasuredServer = {
    url: first.url,
    headers: { 'x-api-key': apiKey },
    memoryMib: () => Math.max(...roles.map(({ pid }) => runlakeMemoryMib(pid))),
  };
  await Promise.all([first, second].map(({ url }) => untilItAnswers(url)));
  await loadServer(runlake, { runs: 32, atOnce: 8, events });
  await loadServer(reference, { runs: 8, atOnce: 8, events });
  const results: { product: LoadResult; other: LoadResult }[] = [];
  for (let turn = 0; turn < turns; turn += 1) {
    const other = await loadServer(reference, { runs: runs.reference, atOnce: 1, events });
    const product = await loadServer(runlake, { runs: runs.product, atOnce: 1, events });
    results.push({ other, product });
  }
  const fullMs = (result: LoadResult) => median(result.runs.map((run) => run.fullMs));
  const firstMs = (result: LoadResult) => median(result.runs.map((run) => run.firstMs));
  const over = mediansOf(results, 4);
  printFigures({
    bench: 'agents-kafka',
    ...againstTargets({
      alone_full_run_share: atMost(
        1 / 8,
        over(({ product, other }) => fullMs(product) / fullMs(other)),
      ),
    }),
    alone_p50_ms: over(({ product }) => fullMs(product)),
    alone_first_event_p50_ms: over(({ product }) => firstMs(product)),
    reference_alone_p50_ms: over(({ other }) => fullMs(other)),
    largest_memory_mib: round(runlake.memoryMib(), 0),
    runs_per_turn: runs.product,
    turns,
  });
});
