/**
 * Whether memory stays flat under load: five minutes of the load of `bench/ingest` at half its speed, with the resident
 * memory of the server sampled each second. The ratio is the median of the fifth minute to that of the second; lower is
 * better.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { median, printFigures, round } from './figures.ts';
import { makeRuns, multipartBody, multipartType, runsPerBody } from './ingest-load/bodies.ts';
import { maxPeakMib, memoryMib } from './ingest-load/process-figures.ts';
import { sendAll } from './ingest-load/send.ts';
import { untilInserted } from './ingest-load/stored.ts';
import { atEnd, startBenchRunlake } from './started.ts';

const minutes = 5;
const bodiesPerRound = 50;

const runlake = await startBenchRunlake();
const options = {
  url: runlake.url,
  apiKey: runlake.apiKey,
  contentType: multipartType,
  clients: 8,
  path: '/runs/multipart',
};
const samples: { second: number; mib: number }[] = [];
const began = performance.now();
const seconds = () => (performance.now() - began) / 1_000;
const sampler = setInterval(() => samples.push({ second: seconds(), mib: memoryMib(runlake.pid, 'VmRSS') }), 1_000);
atEnd(() => clearInterval(sampler));
let runs = 0;
while (seconds() < minutes * 60) {
  const bodies = Array.from({ length: bodiesPerRound }, () => multipartBody(makeRuns(runsPerBody)));
  const roundBegan = performance.now();
  await sendAll(bodies, options);
  runs += bodiesPerRound * runsPerBody;
  await delay(performance.now() - roundBegan);
}
await untilInserted(runlake.url, runs);
const inMinute = (minute: number) =>
  median(samples.filter(({ second }) => Math.floor(second / 60) === minute - 1).map(({ mib }) => mib));
printFigures({
  bench: 'ingest-memory',
  ratio: round(inMinute(minutes) / inMinute(2), 3),
  target: 1.25,
  higher_is_better: false,
  mib_by_minute: Array.from({ length: minutes }, (_, index) => round(inMinute(index + 1), 0)),
  peak_mib: round(memoryMib(runlake.pid, 'VmHWM'), 0),
  peak_mib_target: maxPeakMib,
  runs,
});
