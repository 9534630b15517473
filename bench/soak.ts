/**
 * Whether memory stays flat: ten minutes of a constant load over HTTP through `runlake api`, Kafka and `runlake
 * ingest`, with the resident memory of both sampled each second. The ratio is the median of the tenth minute to that of
 * the second, of the worse role.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { median, printFigures, round } from './figures.ts';
import { makeRuns, multipartBody, multipartType, runsPerBody } from './ingest-load/bodies.ts';
import { cpuSeconds, memoryMib } from './ingest-load/process-figures.ts';
import { sendAll } from './ingest-load/send.ts';
import { untilInserted } from './ingest-load/stored.ts';
import { withStack } from './stack.ts';
import { atEnd, startBenchRole } from './started.ts';

const minutes = 10;
const bodiesPerSecond = 10;

await withStack(async (stack) => {
  const roles = {
    api: await startBenchRole('api', stack.environment),
    ingest: await startBenchRole('ingest', stack.environment),
  };
  const options = {
    url: roles.api.url,
    apiKey: stack.apiKey,
    contentType: multipartType,
    clients: 4,
    path: '/runs/multipart',
  };
  const names = Object.keys(roles) as (keyof typeof roles)[];
  const samples: { minute: number; mib: Record<keyof typeof roles, number> }[] = [];
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1_000;
  const sampler = setInterval(() => {
    const mib = { api: memoryMib(roles.api.pid, 'VmRSS'), ingest: memoryMib(roles.ingest.pid, 'VmRSS') };
    samples.push({ minute: Math.floor(seconds() / 60) + 1, mib });
  }, 1_000);
  atEnd(() => clearInterval(sampler));
  let runs = 0;
  while (seconds() < minutes * 60) {
    const turnEnds = performance.now() + 1_000;
    const bodies = Array.from({ length: bodiesPerSecond }, () => multipartBody(makeRuns(runsPerBody)));
    await sendAll(bodies, options);
    runs += bodiesPerSecond * runsPerBody;
    await pause(Math.max(0, turnEnds - performance.now()));
  }
  await untilInserted(roles.ingest.url, runs);
  const inMinute = (minute: number, name: keyof typeof roles) =>
    median(samples.filter((sample) => sample.minute === minute).map(({ mib }) => mib[name]));
  const byMinute = (name: keyof typeof roles) =>
    Array.from({ length: minutes }, (_, index) => round(inMinute(index + 1, name), 0));
  const ratios = names.map((name) => inMinute(minutes, name) / inMinute(2, name));
  printFigures({
    bench: 'soak',
    ratio: round(Math.max(...ratios), 3),
    target: 1.1,
    higher_is_better: false,
    api_mib_by_minute: byMinute('api'),
    ingest_mib_by_minute: byMinute('ingest'),
    api_cpu_seconds: round(cpuSeconds(roles.api.pid), 0),
    ingest_cpu_seconds: round(cpuSeconds(roles.ingest.pid), 0),
    runs,
    runs_per_second: round(runs / seconds(), 0),
  });
});
