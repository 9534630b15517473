import { scanValue } from '../pipelines/ingest/json/scan.ts';
import { printFigures } from './figures.ts';

/**
 * Speed of JSON validation against `JSON.parse` of the same bytes. CPU time of this process, median of several rounds
 * in which both take turns, so that a busy machine slows down both.
 */
const rounds = 9;
const roundBytes = 8_000_000;
const options = { part: 'the bench', maxDepth: 1_000 };

const prose = 'A line of prose that a user wrote, with "quotes" in it.\nAnd another one follows.\n';
const corpora: Record<string, unknown> = {
  run: {
    id: '0192f0c1-2345-7abc-8def-0123456789ab',
    trace_id: '0192f0c1-2345-7abc-8def-0123456789ab',
    dotted_order: '20260228T123045123456Z0192f0c1-2345-7abc-8def-0123456789ab',
    name: 'ChatModel',
    run_type: 'llm',
    start_time: '2026-02-28T12:30:45.123456Z',
    extra: { metadata: { ls_model_name: 'model-1', revision: 7 }, runtime: { sdk: 'js', cores: 8 } },
    session_name: 'default',
  },
  messages: {
    messages: Array.from({ length: 20 }, (_, index) => ({ role: 'user', content: `${prose}${index}`, score: 1.5e-3 })),
  },
  text: { text: 'The quick brown fox jumps over the lazy dog. '.repeat(20_000) },
  unicode: { text: 'Grüße aus Zürich, 你好 世界. '.repeat(20_000) },
  numbers: Array.from({ length: 20_000 }, (_, index) => index * 1.37),
  nested: Array.from({ length: 5_000 }, (_, index) => ({ a: [{ b: { c: [index] } }], d: null, e: true })),
};

function cpuMicros(run: () => void): number {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] as number;

const figures: Record<string, { scanNsPerByte: number; parseNsPerByte: number; ratio: number }> = {};
for (const [name, value] of Object.entries(corpora)) {
  const bytes = Buffer.from(JSON.stringify(value));
  const times = Math.ceil(roundBytes / bytes.length);
  const scanned: number[] = [];
  const parsed: number[] = [];
  for (let round = 0; round < rounds; round++) {
    scanned.push(cpuMicros(() => repeat(times, () => scanValue(bytes, 0, bytes.length, options))));
    parsed.push(cpuMicros(() => repeat(times, () => JSON.parse(bytes.toString('utf8')))));
  }
  const perByte = (micros: number) => Number(((micros * 1_000) / (times * bytes.length)).toFixed(2));
  figures[name] = {
    scanNsPerByte: perByte(median(scanned)),
    parseNsPerByte: perByte(median(parsed)),
    ratio: Number((median(parsed) / median(scanned)).toFixed(2)),
  };
}

function repeat(times: number, run: () => unknown): void {
  for (let time = 0; time < times; time++) run();
}

const ratios = Object.values(figures).map(({ ratio }) => ratio);
const ratio = Number((ratios.reduce((product, one) => product * one, 1) ** (1 / ratios.length)).toFixed(2));
printFigures({
  bench: 'json-scan',
  ratio,
  target: 1,
  higher_is_better: true,
  ratio_is: 'bytes per CPU second of the scan over those of JSON.parse, geometric mean of the corpora',
  slowest_ratio: Math.min(...ratios),
  corpora: figures,
});
