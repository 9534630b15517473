import { fault } from '../../infra/errors/runlake-error.ts';
import type { DeadLetterHead, LetterFilter } from '../../infra/event-log/dead-letters.ts';
import { replaysOf } from '../../pipelines/dead-letters/letter-replays.ts';
import { readLetter, replayLetter } from '../../pipelines/dead-letters/replay-letter.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { topics } from '../../schemas/topics.ts';
import { type LetterAccess, withLetters } from './letter-access.ts';
import { letterAsJson, letterAsText } from './letter-text.ts';
import { printTable } from './print-table.ts';

export interface LetterChoice {
  readonly topic?: string;
  readonly step?: string;
  readonly since?: string;
  readonly until?: string;
  readonly limit: string;
}

const mostLetters = 1_000;

/** `runlake dlq list` */
export async function listLetters(choice: LetterChoice & { readonly json?: boolean }): Promise<void> {
  const filter = filterOf(choice);
  const limit = limitOf(choice);
  await withLetters(async ({ letters, stores }) => {
    const heads = await letters.list(filter, limit);
    const replays = await replaysOf(
      stores.database,
      heads.map(({ id }) => id),
    );
    if (choice.json === true) {
      for (const head of heads) console.log(JSON.stringify(letterAsJson(head, replays.get(head.id))));
      return;
    }
    if (heads.length === 0) return console.log('There are no dead letters that fit.');
    const rows = heads.map((head) => [
      head.id,
      timeOf(head),
      head.step,
      sizeOf(head.sizeBytes),
      replays.has(head.id) ? 'yes' : 'no',
      head.key,
      head.reason,
    ]);
    printTable([['ID', 'TIME', 'STEP', 'SIZE', 'REPLAYED', 'KEY', 'REASON'], ...rows]);
    const oldest = heads.at(-1) as DeadLetterHead;
    if (heads.length === limit) console.log(`Older ones: runlake dlq list --until ${timeOf(oldest)}`);
  });
}

/** `runlake dlq show <id>` */
export async function showLetter(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withLetters(async ({ letters, stores, schemaOf }) => {
    const letter = await letters.find(id);
    if (letter === undefined) throw fault('LETTER_UNKNOWN', { letter: id });
    const record = await readLetter(letter, schemaOf);
    const replayedAt = (await replaysOf(stores.database, [id])).get(id);
    if (json) console.log(JSON.stringify(letterAsJson(letter, replayedAt, { ...letter, record }), undefined, 2));
    else for (const line of letterAsText(letter, replayedAt, record)) console.log(line);
  });
}

/** `runlake dlq replay [ids...]`. Ends with status 1 where a letter was not replayed. */
export async function replayLetters(
  ids: readonly string[],
  choice: LetterChoice & { readonly all?: boolean; readonly force?: boolean },
): Promise<void> {
  const filter = filterOf(choice);
  const limit = limitOf(choice);
  const chosen = [choice.topic, choice.step, choice.since, choice.until].some((given) => given !== undefined);
  if (ids.length > 0 === (chosen || choice.all === true)) {
    const reason = 'Name the letters by their ids, or choose them by --topic, --step, --since, --until, or --all.';
    throw fault('BAD_REQUEST', { reason });
  }
  await withLetters(async (access) => {
    const wanted = ids.length > 0 ? ids : (await access.letters.list(filter, limit)).map(({ id }) => id).reverse();
    if (wanted.length === 0) return console.log('There are no dead letters that fit.');
    console.log(
      'A replayed event stands at the end of its topic: its values win over those of patches that came before.',
    );
    let left = 0;
    for (const id of wanted) if (!(await replayOne(id, access, choice.force === true))) left++;
    console.log(`${wanted.length - left} replayed, ${left} not.`);
    if (left > 0) process.exitCode = 1;
    if (ids.length === 0 && wanted.length === limit) console.log(`There may be more: --limit ${limit} was reached.`);
  });
}

async function replayOne(id: string, access: LetterAccess, force: boolean): Promise<boolean> {
  const letter = await access.letters.find(id);
  if (letter === undefined) {
    console.log(`${id}: not replayed: there is no such letter.`);
    return false;
  }
  const { database, warehouse } = access.stores;
  const replay = await replayLetter(letter, { ...access, database, warehouse }, { force });
  if (replay.outcome === 'replayed') console.log(`${id}: replayed.`);
  else console.log(`${id}: not replayed: ${replay.reason}. To do it all the same: --force.`);
  return replay.outcome === 'replayed';
}

function filterOf({ topic, step, since, until }: LetterChoice): LetterFilter {
  const wanted = topics.filter(({ name }) => topic === undefined || name === topic);
  if (wanted.length === 0) {
    const names = topics.map(({ name }) => name).join(', ');
    throw fault('BAD_REQUEST', { reason: `There is no topic '${topic}'; there are ${names}.` });
  }
  return { topics: wanted, step, sinceMs: millisecondsOf('--since', since), untilMs: millisecondsOf('--until', until) };
}

function millisecondsOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const micros = parseTime(text);
  if (micros === undefined) {
    throw fault('BAD_REQUEST', { reason: `${option} must be a time such as 2026-01-31T12:00:00Z, not '${text}'.` });
  }
  return Math.floor(micros / 1_000);
}

function limitOf({ limit }: LetterChoice): number {
  if (/^\d{1,4}$/.test(limit) && Number(limit) >= 1 && Number(limit) <= mostLetters) return Number(limit);
  throw fault('BAD_REQUEST', { reason: `--limit must be a number from 1 to ${mostLetters}, not '${limit}'.` });
}

function timeOf({ deadAtMs }: DeadLetterHead): string {
  return new Date(deadAtMs).toISOString();
}

function sizeOf(bytes: number): string {
  return bytes < 10_000
    ? `${bytes} B`
    : bytes < 10_000_000
      ? `${Math.round(bytes / 1_000)} kB`
      : `${Math.round(bytes / 1e6)} MB`;
}
