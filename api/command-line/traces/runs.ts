import { LRUCache } from 'lru-cache';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { parseMarkedJson, parsePartlyMarkedJson, restoreNumbers } from '../../../infra/json/marked-json.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { readMembers } from '../../../pipelines/datasets/files/download-dataset.ts';
import { unlessInterrupted } from '../interrupt.ts';
import { type MainApiClient, type MainApiOptions, withMainApi } from '../main-api-client.ts';
import { parseLimit, parseTimeOption } from '../parse-options.ts';
import { isId } from '../pick-named.ts';
import { printTable, toPrintable } from '../print-table.ts';

export interface RunListOptions extends MainApiOptions {
  readonly project?: string;
  readonly filter?: string;
  readonly errors?: boolean;
  readonly children?: boolean;
  readonly since?: string;
  readonly limit?: string;
}

/** The fields of a run that the commands print. */
interface Run {
  readonly id: string;
  readonly name: string;
  readonly run_type: string;
  readonly status: string;
  readonly start_time: string;
  readonly end_time: string | null;
  readonly error: string | null;
  readonly total_tokens: number | null;
  readonly total_cost: string | number | null;
  readonly app_path: string;
}

const maxListed = 10_000;
const maxPageRuns = 100;
const header = ['TIME', 'ID', 'NAME', 'TYPE', 'STATUS', 'SECONDS', 'TOKENS', 'COST', 'ERROR'];
const listedFields = [
  ...['id', 'name', 'run_type', 'status', 'start_time', 'end_time', 'error'],
  ...['total_tokens', 'total_cost', 'app_path'],
];

/** Runs `runlake runs list`. */
export async function listRuns(options: RunListOptions): Promise<void> {
  const limit = parseLimit(options.limit ?? '20', maxListed);
  await withMainApi(options, async (client) => {
    const query = await buildQuery(client, options);
    const runs: Run[] = [];
    let cursor: string | null = null;
    do {
      const page = { limit: Math.min(limit - runs.length, maxPageRuns), ...(cursor !== null && { cursor }) };
      const answer: RunPage = await client.ask('POST', '/runs/query', { ...query, ...page });
      runs.push(...answer.runs);
      cursor = answer.cursors.next;
    } while (cursor !== null && runs.length < limit);
    if (options.json === true) for (const run of runs) console.log(JSON.stringify(run));
    else if (runs.length === 0) console.log('No matching runs.');
    else printTable([header, ...runs.map(toCells)]);
  });
}

interface RunPage {
  readonly runs: readonly Run[];
  readonly cursors: { readonly next: string | null };
}

const shownValues = ['inputs', 'outputs', 'extra', 'feedback_stats'];

/** Formats a value with indentation, and one that is nested too deep for that as the JSON text that was received. */
function formatValue(value: unknown, findText: () => string | undefined): string {
  try {
    return restoreNumbers(JSON.stringify(value, undefined, 2));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return findText() ?? '';
  }
}

/** Runs `runlake runs show <id>`, with numbers as they were sent. */
export async function showRun(id: string, options: MainApiOptions): Promise<void> {
  if (!isId(id)) throw runlakeError('BAD_REQUEST', { reason: `'${toPrintable(id)}' is not the id of a run.` });
  await withMainApi(options, async (client) => {
    const isJson = options.json === true;
    const parse = (text: string) => {
      const value = isJson ? parseMarkedJson(text) : parsePartlyMarkedJson(text, shownValues);
      return { text, run: value as Run & Readonly<Record<string, unknown>> };
    };
    const { text, run } = await client.ask<ReturnType<typeof parse>>('GET', `/runs/${id}`, undefined, parse);
    if (isJson) return console.log(formatValue(run, () => text));
    for (const [index, cell] of toCells(run).entries()) {
      if (cell !== '') console.log(`${(header[index] ?? '').padEnd(8)} ${toPrintable(cell)}`);
    }
    console.log(`LINK     ${toPrintable(client.endpoint + run.app_path)}`);
    for (const name of shownValues) {
      if (run[name] == null) continue;
      console.log(`\n${name}:`);
      for (const line of formatValue(run[name], () => readMembers(text).get(name)).split('\n'))
        console.log(toPrintable(line));
    }
  });
}

const pollMs = 1_000;
/** Runs that arrive later than this after their start are not printed. */
const lateMs = 60_000;

/** Maximum number of pages of one poll; more runs than this within {@link lateMs} are not all printed. */
const maxTailPages = 1_000;

/** Runs `runlake runs tail`: prints runs as they arrive, until the process is interrupted. */
export async function tailRuns(options: RunListOptions): Promise<void> {
  await withMainApi(options, async (client) => {
    const { interrupted } = client;
    const printed = new LRUCache<string, true>({ max: 100_000 });
    const startedAtMs = Date.now();
    const { start_time: _since, ...query } = await buildQuery(client, options);
    while (!interrupted.aborted) {
      const since = new Date(Math.max(startedAtMs, Date.now() - lateMs)).toISOString();
      const found = await unlessInterrupted(client, listUnprinted(client, { ...query, start_time: since }, printed));
      for (const run of [...(found ?? [])].reverse()) {
        printed.set(run.id, true);
        console.log(options.json === true ? JSON.stringify(run) : toCells(run).map(toPrintable).join('  ').trimEnd());
      }
      await pause(pollMs, interrupted);
    }
  });
}

/**
 * Lists the runs that are not in `printed`, newest first. Stops after a page without such runs: older runs were usually
 * printed by an earlier poll.
 */
async function listUnprinted(
  client: MainApiClient,
  query: object,
  printed: { has(id: string): boolean },
): Promise<readonly Run[]> {
  const found = new Map<string, Run>();
  let cursor: string | null = null;
  for (let pages = 0; pages < maxTailPages; pages += 1) {
    const page = { ...query, limit: maxPageRuns, ...(cursor !== null && { cursor }) };
    const answer: RunPage = await client.ask('POST', '/runs/query', page);
    const fresh = answer.runs.filter(({ id }) => !printed.has(id));
    for (const run of fresh) found.set(run.id, run);
    cursor = answer.cursors.next;
    if (cursor === null || fresh.length === 0) break;
  }
  return [...found.values()];
}

/** Returns the body of a query for runs. @throws BAD_REQUEST if there is no such project. */
async function buildQuery(client: MainApiClient, options: RunListOptions) {
  const { project, filter, errors, children, since } = options;
  // The API takes no days without a time.
  const start = since === undefined ? undefined : new Date(Math.floor(parseTimeOption('--since', since) / 1_000));
  return {
    select: listedFields,
    ...(project !== undefined && { session: [await findProject(client, project)] }),
    ...(filter !== undefined && { filter }),
    ...(errors === true && { error: true }),
    ...(children !== true && { is_root: true }),
    ...(start !== undefined && { start_time: start.toISOString() }),
  };
}

async function findProject(client: MainApiClient, nameOrId: string): Promise<string> {
  if (isId(nameOrId)) return nameOrId;
  const path = `/sessions?name=${encodeURIComponent(nameOrId)}&limit=1`;
  const [found] = await client.ask<{ readonly id: string }[]>('GET', path);
  if (found !== undefined) return found.id;
  throw runlakeError('BAD_REQUEST', { reason: `The workspace has no project '${toPrintable(nameOrId)}'.` });
}

function toCells(run: Run): string[] {
  const { start_time: start, end_time: end, error } = run;
  const seconds = end === null ? '' : ((Date.parse(end) - Date.parse(start)) / 1_000).toFixed(2);
  return [
    ...[start, run.id, run.name, run.run_type, run.status, seconds],
    ...[run.total_tokens ? String(run.total_tokens) : '', run.total_cost ? String(run.total_cost) : ''],
    error?.split('\n')[0] ?? '',
  ];
}
