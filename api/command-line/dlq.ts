import { OpenedOnce } from '../../infra/cache/opened-once.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { readSchemaId } from '../../infra/event-log/avro.ts';
import {
  type DeadLetterFilter,
  type DeadLetterHead,
  type DeadLetterQueue,
  type DeadLetterRecord,
  deadLetterSteps,
} from '../../infra/event-log/event-log.ts';
import { readReplayTimes, replayThroughJob } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { decodeRecord, replayDeadLetter } from '../../pipelines/dead-letters/replay-dead-letter.ts';
import { topics } from '../../schemas/topics.ts';
import { openDeadLetters, openEventLog } from './open-event-log.ts';
import { type Stores, withStores } from './open-stores.ts';
import { parseLimit, parseTimeOption } from './parse-options.ts';
import { printTable, toPrintable } from './print-table.ts';

export interface DeadLetterOptions {
  readonly topic?: string;
  readonly step?: string;
  readonly since?: string;
  readonly until?: string;
  readonly limit: string;
}

const maxDeadLetters = 1_000;

/** Runs `runlake dlq list`. */
export async function listDeadLetters(options: DeadLetterOptions & { readonly json?: boolean }): Promise<void> {
  const filter = parseFilter(options);
  const limit = parseLimit(options.limit, maxDeadLetters);
  await withDeadLetters(async ({ deadLetters, stores }) => {
    const found = await deadLetters.list(filter, limit + 1);
    const heads = found.slice(0, limit);
    const replayTimes = await readReplayTimes(
      stores.database,
      heads.map(({ id }) => id),
    );
    if (options.json === true) {
      for (const head of heads) console.log(JSON.stringify(toDeadLetterJson(head, replayTimes.get(head.id))));
      return;
    }
    if (heads.length === 0) return console.log('No matching dead-letter records.');
    const rows = heads.map((head) => [
      head.id,
      formatTime(head),
      head.step,
      formatSize(head.sizeBytes),
      replayTimes.has(head.id) ? 'yes' : 'no',
      head.key,
      head.reason,
    ]);
    printTable([['ID', 'TIME', 'STEP', 'SIZE', 'REPLAYED', 'KEY', 'REASON'], ...rows]);
    printOlder(found, limit);
  });
}

/** Runs `runlake dlq show <id>`. */
export async function showDeadLetter(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withDeadLetters(async ({ deadLetters, stores, getSchema }) => {
    const deadLetter = await deadLetters.find(id);
    if (deadLetter === undefined) throw runlakeError('DEAD_LETTER_UNKNOWN', { deadLetter: id });
    const record = await decodeRecord(deadLetter, getSchema);
    const replayedAt = (await readReplayTimes(stores.database, [id])).get(id);
    if (json)
      console.log(JSON.stringify(toDeadLetterJson(deadLetter, replayedAt, { ...deadLetter, record }), undefined, 2));
    else for (const line of formatDeadLetter(deadLetter, replayedAt, record)) console.log(line);
  });
}

/** Runs `runlake dlq replay [ids...]`. The exit code is 1 if any record could not be replayed. */
export async function replayDeadLetters(
  ids: readonly string[],
  selectionOptions: DeadLetterOptions & { readonly all?: boolean; readonly force?: boolean },
): Promise<void> {
  const filter = parseFilter(selectionOptions);
  const limit = parseLimit(selectionOptions.limit, maxDeadLetters);
  const hasFilter = [
    selectionOptions.topic,
    selectionOptions.step,
    selectionOptions.since,
    selectionOptions.until,
  ].some((given) => given !== undefined);
  if (ids.length > 0 === (hasFilter || selectionOptions.all === true)) {
    const reason = 'Select records either by their ids or by --topic, --step, --since, --until or --all.';
    throw runlakeError('BAD_REQUEST', { reason });
  }
  await withDeadLetters(async (access) => {
    const found = ids.length > 0 ? [] : await access.deadLetters.list(filter, limit + 1);
    const heads = found.slice(0, limit);
    const selectedIds = ids.length > 0 ? ids : heads.map(({ id }) => id).reverse();
    if (selectedIds.length === 0) return console.log('No matching dead-letter records.');
    const missing = new Set(selectedIds);
    const selected = missing.size;
    let replayed = 0;
    await access.deadLetters.read(selectedIds, async (deadLetter) => {
      missing.delete(deadLetter.id);
      if (await replayRecord(deadLetter, access, selectionOptions.force === true)) replayed++;
    });
    for (const id of missing) console.log(`${id}: not replayed: no such record.`);
    console.log(`${replayed} replayed, ${selected - replayed} not replayed.`);
    if (replayed < selected) process.exitCode = 1;
    printOlder(found, limit);
  });
}

/**
 * Says how to select the records after the first `limit` of `found`, newest first. Without this option, the same command
 * selects the first ones again.
 */
function printOlder(found: readonly DeadLetterHead[], limit: number): void {
  const [newest, next] = [found[0], found[limit]];
  if (newest === undefined || next === undefined) return;
  const time = formatTime(next);
  if (time !== formatTime(newest)) console.log(`For older records, add --until ${time}`);
  else console.log(`More than ${limit} records have the time ${time}: use a larger --limit.`);
}

async function replayRecord(deadLetter: DeadLetterRecord, access: DeadLetterAccess, force: boolean): Promise<boolean> {
  const { id } = deadLetter;
  const { database } = access.stores;
  const replayResult = await replayDeadLetter(deadLetter, { ...access, database }, { force });
  if (replayResult.outcome === 'replayed') console.log(`${id}: replayed.`);
  else console.log(`${id}: not replayed: ${replayResult.reason}. Use --force to replay it anyway.`);
  return replayResult.outcome === 'replayed';
}

function parseFilter({ topic, step, since, until }: DeadLetterOptions): DeadLetterFilter {
  const selectedTopics = topics.filter(({ name }) => topic === undefined || name === topic);
  if (selectedTopics.length === 0) {
    const names = topics.map(({ name }) => name).join(', ');
    throw runlakeError('BAD_REQUEST', { reason: `Unknown topic '${topic}'. Topics: ${names}.` });
  }
  if (step !== undefined && !(deadLetterSteps as readonly string[]).includes(step)) {
    throw runlakeError('BAD_REQUEST', { reason: `Unknown step '${step}'. Steps: ${deadLetterSteps.join(', ')}.` });
  }
  return {
    topics: selectedTopics,
    step,
    sinceMs: parseMilliseconds('--since', since),
    untilMs: parseMilliseconds('--until', until),
  };
}

function parseMilliseconds(option: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : Math.floor(parseTimeOption(option, text) / 1_000);
}

function formatTime({ deadLetteredAtMs }: DeadLetterHead): string {
  return new Date(deadLetteredAtMs).toISOString();
}

function formatSize(bytes: number): string {
  return bytes < 10_000
    ? `${bytes} B`
    : bytes < 10_000_000
      ? `${Math.round(bytes / 1_000)} kB`
      : `${Math.round(bytes / 1e6)} MB`;
}

/** Access to the dead-letter queue of this installation for reading and replaying records. */
interface DeadLetterAccess {
  readonly deadLetters: DeadLetterQueue;
  readonly stores: Stores;
  readonly getSchema: (schemaId: number) => Promise<string | undefined>;
  readonly publish: (deadLetter: DeadLetterRecord) => Promise<void>;
}

/**
 * Opens the dependencies of a dead-letter command, and closes them when `work` has finished.
 *
 * @throws NOT_RUNNING and the errors of the dependencies.
 */
async function withDeadLetters(work: (access: DeadLetterAccess) => Promise<void>): Promise<void> {
  await withStores('dlq', async ({ config, logger, stores, openJobs, shutdown }) => {
    const deadLetters = await openDeadLetters({ config, logger, stores }, shutdown);
    if (config.kafkaBrokers === undefined) {
      return work({
        deadLetters,
        stores,
        getSchema: async (schemaId) => topics[schemaId - 1]?.schema,
        publish: async (deadLetter) =>
          replayThroughJob(deadLetter, { jobs: await openJobs(), database: stores.database }),
      });
    }
    const { SchemaRegistry } = await import('../../infra/event-log/kafka/schema-registry.ts');
    const registry = new SchemaRegistry(config);
    const kafka = new OpenedOnce(async () => (await openEventLog({ config, logger, stores }, shutdown)).log);
    return work({
      deadLetters,
      stores,
      getSchema: (schemaId) => registry.getSchemaText(schemaId),
      publish: async ({ topic: name, key, value, headers }) => {
        const topic = topics.find((knownTopic) => knownTopic.name === name);
        if (topic !== undefined) await (await kafka.get()).publish(topic, [{ key, value, headers }]);
      },
    });
  });
}

/** Maximum number of bytes in a hex dump. */
const maxDumpBytes = 4 * 1024;

type RecordContent = Pick<DeadLetterRecord, 'value' | 'headers'> & {
  readonly record: Record<string, unknown> | undefined;
};

/**
 * Formats a dead-letter record as JSON. With `content`, also includes the headers and the decoded record. If the record
 * cannot be decoded, its bytes are included in base64.
 */
function toDeadLetterJson(head: DeadLetterHead, replayedAt: string | undefined, content?: RecordContent): object {
  const { id, topic, partition, offset, key, sizeBytes, reason, step, deadLetteredAtMs } = head;
  return {
    id,
    topic,
    partition,
    offset,
    key,
    size_bytes: sizeBytes,
    reason,
    step,
    time: new Date(deadLetteredAtMs).toISOString(),
    replayed_at: replayedAt ?? null,
    ...(content && {
      headers: content.headers,
      schema_id: readSchemaId(content.value) ?? null,
      ...(content.record ? { record: content.record } : { value_base64: content.value.toString('base64') }),
    }),
  };
}

/**
 * Formats a dead-letter record as text: first the metadata, then the headers, then the decoded record as JSON. If the
 * record cannot be decoded, a hex dump is shown instead.
 */
function formatDeadLetter(
  deadLetter: DeadLetterRecord,
  replayedAt: string | undefined,
  record: Record<string, unknown> | undefined,
): string[] {
  const schemaId = readSchemaId(deadLetter.value);
  const details: [string, string][] = [
    ['Id', deadLetter.id],
    ['Reason', deadLetter.reason],
    ['Step', deadLetter.step],
    ['Time', new Date(deadLetter.deadLetteredAtMs).toISOString()],
    ['Event', `partition ${deadLetter.partition}, offset ${deadLetter.offset} of ${deadLetter.topic}`],
    ['Key', deadLetter.key],
    ['Size', `${deadLetter.sizeBytes} bytes`],
    ['Schema', schemaId === undefined ? 'none: the bytes are not in the wire format' : String(schemaId)],
    ['Replayed', replayedAt ?? 'no'],
    ...Object.entries(deadLetter.headers).map(([name, value]): [string, string] => [`Header ${name}`, value]),
  ];
  const lines = details.map(([name, value]) => `${toPrintable(name).padEnd(10)} ${toPrintable(value)}`);
  if (record !== undefined) return [...lines, '', ...JSON.stringify(record, undefined, 2).split('\n').map(toPrintable)];
  return [...lines, '', 'The record cannot be decoded. Its bytes:', ...formatHexDump(deadLetter.value)];
}

function formatHexDump(bytes: Buffer): string[] {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, maxDumpBytes); at += 16) {
    const row = bytes.subarray(at, at + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const text = row.toString('latin1').replace(/[^ -~]/g, '.');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > maxDumpBytes) lines.push(`… and ${bytes.length - maxDumpBytes} more bytes: see --json`);
  return lines;
}
