import { costSql } from '../costs/cost-sql.ts';
import type { RunType } from '../ingest/run-event/run-event.ts';
import { startRoundingMicros } from '../ingest/run-event/times.ts';
import { neverSeconds, traceTiers } from '../retention/lifetimes.ts';
import { toPairs, toReadableJson } from './json-sql.ts';

export const toMicrosSql = (time: string) => `toUnixTimestamp64Micro(${time})`;
const statedStartMicros = toMicrosSql('started_at');
/**
 * SQL: start of a run as shown, in microseconds. This is the stated start, unless it differs too much from the key
 * time.
 */
export const startedAtMicros = `if(abs(${statedStartMicros} - ${toMicrosSql('start_time')}) <= ${startRoundingMicros}, ${statedStartMicros}, ${toMicrosSql('start_time')})`;
/**
 * SQL condition: the run is a model call. Only model calls have usage. The type is checked on read, because a patch may
 * omit it.
 */
export const isModelCallSql = `run_type IN ('llm', 'embedding')`;
/** SQL condition: the run is the root of its trace. The id of an OpenTelemetry root span differs from its trace id. */
export const isRootSql = '(id = trace_id OR isNull(parent_run_id))';
const restrictToModelCalls = (name: string) => `if(${isModelCallSql}, ${name}, NULL)`;
const readableExtraSql = toReadableJson(`ifNull(extra, '')`);
const buildMetadataTextSql = (key: string) => `nullIf(JSONExtractString(json, 'metadata', '${key}'), '')`;

/**
 * SQL: thread (conversation) of a run, null if it has none. The thread is the first of three metadata keys that is not
 * null or empty. The list binds `json`: ClickHouse analyses the long expression once, which is 10 % of the CPU time of
 * a page of threads.
 */
export const threadIdSql = `arrayMap(json -> coalesce(${['thread_id', 'session_id', 'conversation_id'].map(buildMetadataTextSql).join(', ')}), [${readableExtraSql}])[1]`;

/** Type of a run for which no event has stated a type yet. */
export const defaultRunType: RunType = 'chain';

/** SQL: values as they are shown, for filters and statistics. They are never null, and `tags` is an array. */
export const shownValues = {
  name: `ifNull(name, '')`,
  run_type: `ifNull(run_type, '${defaultRunType}')`,
  status: `multiIf(isNotNull(error), 'error', isNotNull(ended_at), 'success', 'pending')`,
  tags: `JSONExtract(${toReadableJson(`ifNull(tags, '[]')`)}, 'Array(String)')`,
} as const;

/**
 * Expressions for a WITH clause or a SELECT. The last expression, `metadata_pairs`, contains the metadata as {@link
 * toPairs} lists it.
 */
export const metadataPairs: readonly string[] = [
  `${toReadableJson(`ifNull(extra, '{}')`)} AS metadata_extra`,
  `JSONExtractRaw(metadata_extra, 'metadata') AS metadata_json`,
  `${toPairs('metadata_json')} AS metadata_pairs`,
];

/** Maximum number of characters of a preview. One more character is read to detect truncation. */
export const previewCharacters = 250;
const preview = (name: string) => `substringUTF8(${name}, 1, ${previewCharacters + 1})`;

/** SQL: size of the texts of a run, in bytes. The schema of `runs` says how exact it is. */
export const runBytes = '(inputs_bytes + outputs_bytes + other_bytes)';

/**
 * Columns of a run as SQL over `runs FINAL`. Columns are read as a whole, because reading a subcolumn would skip
 * merging.
 */
export const runColumns = {
  projectId: 'session_id',
  keyTimeMicros: toMicrosSql('start_time'),
  traceId: 'trace_id',
  id: 'id',
  traceTimeMicros: toMicrosSql('trace_time'),
  dottedOrder: 'dotted_order',
  traceTier: `if(trace_tier = ${traceTiers.shortlived}, 'shortlived', 'longlived')`,
  /** Lifetime of the trace in seconds; null if it never expires. */
  lifetimeSeconds: `if(expires_at >= toDateTime(${neverSeconds}), NULL, toUnixTimestamp(expires_at) - toUnixTimestamp(trace_time))`,
  name: 'name',
  runType: 'run_type',
  startedAtMicros,
  endedAtMicros: toMicrosSql('ended_at'),
  /** Not null if the run failed. */
  failed: `if(isNotNull(error), '1', NULL)`,
  parentRunId: 'parent_run_id',
  referenceExampleId: 'reference_example_id',
  tags: 'tags',
  inputs: 'inputs',
  outputs: 'outputs',
  error: 'error',
  events: 'events',
  extra: 'extra',
  inputsPreview: preview('inputs'),
  outputsPreview: preview('outputs'),
  promptTokens: restrictToModelCalls('prompt_tokens'),
  completionTokens: restrictToModelCalls('completion_tokens'),
  totalTokens: restrictToModelCalls('total_tokens'),
  promptCost: restrictToModelCalls(costSql.prompt_cost),
  completionCost: restrictToModelCalls(costSql.completion_cost),
  totalCost: restrictToModelCalls(costSql.total_cost),
  firstTokenTimeMicros: toMicrosSql(restrictToModelCalls('first_token_time')),
  threadId: threadIdSql,
  /** Metadata as a JSON object; null if the extra data contains none. */
  metadata: `nullIf(JSONExtractRaw(${readableExtraSql}, 'metadata'), '')`,
} as const satisfies Record<string, string>;

export type SqlColumn = keyof typeof runColumns;

/**
 * The readable columns of a run. Those without SQL are read only as they are stored; `priceModelId` is the entry of the
 * price map from which the costs are computed, null if the run states its costs.
 */
export type RunColumn = SqlColumn | 'receivedAtMicros' | 'serialized' | 'usageDetails' | 'priceModelId';

/** Columns that only model calls have. They are half of the stored columns that a page reads. */
export const modelCallColumns: ReadonlySet<RunColumn> = new Set([
  'promptTokens',
  'completionTokens',
  'totalTokens',
  'promptCost',
  'completionCost',
  'totalCost',
  'usageDetails',
  'priceModelId',
  'firstTokenTimeMicros',
]);

/**
 * Data about runs that other modules store. The functions receive the runs of a page and are called only if the
 * response needs them. The values of the first two maps are JSON objects as text.
 */
export interface RunExtras {
  /** Map from feedback key to statistics (`n`, `avg`, `values`, …), by run. Runs without feedback are omitted. */
  feedbackStats(tenantId: string, runIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Map from `attachment.<name>` to `{presigned_url, mime_type}`, by run. Runs without attachments are omitted. */
  attachmentUrls(tenantId: string, runIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Token and URL of the public view, by trace. Traces that are not shared are omitted. */
  shares(tenantId: string, traceIds: readonly string[]): Promise<ReadonlyMap<string, Share>>;
  /** Uses in datasets and annotation queues, by run. Runs without any are omitted. */
  uses(tenantId: string, runIds: readonly string[]): Promise<ReadonlyMap<string, RunUse>>;
  /** Dataset by project. Projects that are not experiments are omitted. */
  datasets(tenantId: string, projectIds: readonly string[]): Promise<ReadonlyMap<string, string>>;
}

export interface RunUse {
  /** Whether a current example names the run as its source. */
  readonly inDataset: boolean;
  /** When the run was last added to an annotation queue, in microseconds since 1970. */
  readonly lastQueuedMicros: number | undefined;
}

export interface Share {
  readonly token: string;
  readonly url: string;
}

/** Sorting key of a run without the tenant. Ids are in lower case with dashes. */
export interface RunKey {
  readonly projectId: string;
  readonly startTimeMicros: number;
  readonly traceId: string;
  readonly runId: string;
}

/** Order by key time, newest or oldest first. Ties are ordered by the ids, as ClickHouse compares them. */
export type Order = 'asc' | 'desc';

/** A half-open range of key times, in microseconds since 1970. */
export interface TimeWindow {
  readonly fromMicros: number;
  readonly untilMicrosExclusive: number;
}

/** All times that the tables can hold: 1970 to 2260. */
export const allTimes: TimeWindow = { fromMicros: 0, untilMicrosExclusive: 9_180_000_000_000_000 };
