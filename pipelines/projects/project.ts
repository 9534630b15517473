import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { toJsonObject } from '../../infra/json/json-value.ts';
import { formatMarkedJson, parseNullableMarkedJson } from '../../infra/json/marked-json.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { type PageRequest, statements } from '../../infra/postgres/list-page.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runSearch } from '../../infra/postgres/run-search.ts';
import { toJsonb } from '../../infra/postgres/value-types.ts';
import { formatTime, parseTime } from '../ingest/run-event/times.ts';
import { checkFilter } from '../runs/filter/check-filter.ts';
import type { Field } from '../runs/filter/fields.ts';
import { parseFilter } from '../runs/filter/parse-filter.ts';
import { writeRowCondition } from '../runs/filter/row-conditions.ts';
import type { Condition } from '../runs/filter/syntax.ts';

/** A row of `projects`. Times are ISO 8601 with microseconds. */
export interface ProjectRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly extra: Record<string, unknown> | null;
  readonly start_time: string;
  readonly end_time: string | null;
  readonly default_dataset_id: string | null;
  readonly reference_dataset_id: string | null;
  readonly trace_tier: string | null;
  /** Days that longlived traces are kept; null: those of the installation. */
  readonly longlived_ttl_days: number | null;
  readonly num_examples: number | null;
  readonly num_repetitions: number | null;
  readonly evaluator_keys: string[] | null;
}

export type ProjectRow = Omit<ProjectRecord, 'extra'> & { readonly extra: string | null };

export const projectColumns = `id, workspace_id AS tenant_id, name, description, extra, start_time, end_time,
  default_dataset_id, reference_dataset_id, trace_tier, longlived_ttl_days, num_examples, num_repetitions, evaluator_keys`;

export function toProjectRecord(row: ProjectRow): ProjectRecord {
  return { ...row, extra: parseNullableMarkedJson(row.extra) };
}

/** Returns the values of the columns `extra` and `metadata` for a given `extra`; both are null if `extra` is absent. */
export function toExtraColumns(
  extra: Readonly<Record<string, unknown>> | null | undefined,
): [string | null, string | null] {
  if (extra === null || extra === undefined) return [null, null];
  const metadata = Object.hasOwn(extra, 'metadata') ? extra.metadata : undefined;
  return [formatMarkedJson(extra), toJsonb(toJsonObject(metadata))];
}

/** Name of the project for runs that name no project. */
export const DEFAULT_PROJECT = 'default';

/** Maximum length of a project name. Longer names could exceed the maximum size of an index entry in Postgres. */
export const maxNameLength = 512;

/**
 * Returns a valid name. @throws BAD_REQUEST if the name is empty, too long, or contains characters that Postgres cannot
 * store.
 */
export function checkProjectName(name: string): string {
  const reason =
    name.length === 0
      ? 'is empty'
      : name.length > maxNameLength
        ? `is longer than ${maxNameLength} characters`
        : /[\0\p{Surrogate}]/u.test(name)
          ? 'contains NUL characters or lone surrogates'
          : undefined;
  if (reason !== undefined) throw runlakeError('BAD_REQUEST', { reason: `The name of the project ${reason}.` });
  return name;
}

/** Reads a project. @throws NOT_FOUND if the workspace has no project with this id, or if the project is deleted. */
export async function readProject(database: Database, workspaceId: string, projectId: string): Promise<ProjectRecord> {
  const [row] = await database.query<ProjectRow>(
    `SELECT ${projectColumns} FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL`,
    [projectId, workspaceId],
  );
  if (!row) throw runlakeError('NOT_FOUND', { what: 'Session' });
  return toProjectRecord(row);
}

const projectFilterFields = {
  id: { type: 'uuid' },
  name: { type: 'text', isSearchable: true },
  description: { type: 'text', isNullable: true, isSearchable: true },
  start_time: { type: 'time' },
  end_time: { type: 'time', isNullable: true },
  default_dataset_id: { type: 'uuid', isNullable: true },
  reference_dataset_id: { type: 'uuid', isNullable: true },
  trace_tier: { type: 'choice', isNullable: true, choices: ['longlived', 'shortlived'] },
  metadata: { type: 'object', isSearchable: true },
  metadata_key: { type: 'text', family: 'metadata', isKey: true },
  metadata_value: { type: 'pair-value', family: 'metadata' },
} as const satisfies Record<string, Field>;

type ProjectCondition = Condition<keyof typeof projectFilterFields>;

/** Parses and checks the expression in the parameter `filter`. @throws INVALID_FILTER */
export const parseProjectFilter = (text: string): ProjectCondition =>
  checkFilter(parseFilter(text), projectFilterFields);

const filteredTable = { fields: projectFilterFields, metadataColumn: 'metadata' };

/** Conditions on projects; absent conditions do not apply. */
export interface ProjectConditions {
  readonly ids?: readonly string[] | undefined;
  readonly name?: string | undefined;
  /** Text that the name must contain, ignoring case. */
  readonly nameContains?: string | undefined;
  /** Key-value pairs that `extra.metadata` must contain. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Value of `dataset_version` in the metadata; a time matches the texts of the same time that the SDKs write. */
  readonly datasetVersion?: string | undefined;
  /** If true, only projects that are not experiments; if false, only experiments. */
  readonly referenceFree?: boolean | undefined;
  readonly referenceDatasetIds?: readonly string[] | undefined;
  readonly condition?: ProjectCondition | undefined;
}

interface ProjectQuery extends ProjectConditions, PageRequest {
  readonly sortBy: 'name' | 'start_time';
  readonly descending: boolean;
}

/** Lists the texts that stock SDKs write for the time that `version` is, or returns only `version`. */
function listVersionTexts(version: string): string[] {
  const micros = parseTime(version);
  if (micros === undefined) return [version];
  const [seconds = '', digits = ''] = formatTime(micros).split('.');
  const lengths = [0, 1, 2, 3, 4, 5, 6].filter((length) => /^0*$/.test(digits.slice(length)));
  const times = lengths.map((length) => (length === 0 ? seconds : `${seconds}.${digits.slice(0, length)}`));
  return [version, ...times.flatMap((time) => ['Z', '+00:00', ''].map((zone) => `${time}${zone}`))];
}

function buildConditions(workspaceId: string, query: ProjectConditions): { sql: string; params: unknown[] } {
  // The compiled condition numbers its parameters from 1, so it comes first.
  const compiled = query.condition && writeRowCondition(query.condition, filteredTable).compile(statements);
  const params: unknown[] = [...(compiled?.parameters ?? [])];
  const conditions = ['deleted_at IS NULL', ...(compiled ? [compiled.sql] : [])];
  const add = (value: unknown, condition: (parameter: string) => string) => {
    if (value === undefined) return;
    conditions.push(condition(`$${params.push(value)}`));
  };
  add(workspaceId, (id) => `workspace_id = ${id}`);
  add(query.ids, (ids) => `id = ANY (${ids}::uuid[])`);
  add(query.name, (name) => `name = ${name}`);
  add(query.nameContains, (part) => `strpos(lower(name), lower(${part})) > 0`);
  add(query.metadata && toJsonb(query.metadata), (pairs) => `metadata @> ${pairs}::jsonb`);
  const versions = query.datasetVersion === undefined ? undefined : listVersionTexts(query.datasetVersion);
  add(versions, (texts) => `metadata ->> 'dataset_version' = ANY (${texts}::text[])`);
  add(query.referenceDatasetIds, (ids) => `reference_dataset_id = ANY (${ids}::uuid[])`);
  if (query.referenceFree !== undefined) {
    conditions.push(`reference_dataset_id IS ${query.referenceFree ? '' : 'NOT '}NULL`);
  }
  return { sql: conditions.join(' AND '), params };
}

/** Runs a statement for projects, as a search if they are selected by an expression. */
function runStatement<Result>(
  database: Database,
  { condition }: ProjectConditions,
  run: (sql: Sql) => Promise<Result>,
): Promise<Result> {
  return condition === undefined ? run(database) : runSearch(database, {}, run);
}

/**
 * Returns the ids of the projects of a workspace that are not deleted and meet every given condition.
 *
 * @throws errors of {@link runSearch}
 */
export async function findProjectIds(
  database: Database,
  workspaceId: string,
  conditions: ProjectConditions,
): Promise<string[]> {
  const { sql, params } = buildConditions(workspaceId, conditions);
  const statement = `SELECT id FROM projects WHERE ${sql} ORDER BY id`;
  const rows = await runStatement(database, conditions, (tx) => tx.query<{ id: string }>(statement, params));
  return rows.map(({ id }) => id);
}

/**
 * Lists the projects of a workspace that are not deleted and meet every given condition. The id breaks ties, so that
 * consecutive pages neither repeat nor skip a project.
 *
 * @throws ANSWER_TOO_LARGE; errors of {@link runSearch}
 */
export async function listProjects(
  database: Database,
  workspaceId: string,
  query: ProjectQuery,
): Promise<ProjectRecord[]> {
  const { sql, params } = buildConditions(workspaceId, query);
  const direction = query.descending ? 'DESC' : 'ASC';
  const page = `SELECT ${projectColumns} FROM projects WHERE ${sql}
    ORDER BY ${query.sortBy} ${direction}, id ${direction}
    LIMIT $${params.push(query.limit)} OFFSET $${params.push(query.offset)}`;
  const rows = await runStatement(database, query, (tx) =>
    queryPageWithinLimit<ProjectRow>(tx, page, params, internals.maxPageBytes),
  );
  return rows.map(toProjectRecord);
}

/** Numbers experiments by their creation, from 1 for the first on a dataset. Other projects are not in the map. */
export async function numberExperiments(
  database: Pick<Database, 'query'>,
  workspaceId: string,
  projects: readonly ProjectRecord[],
): Promise<ReadonlyMap<string, number>> {
  const datasetIds = new Set(projects.flatMap(({ reference_dataset_id: id }) => id ?? []));
  if (datasetIds.size === 0) return new Map();
  const rows = await database.query<{ id: string; number: number }>(
    `SELECT id, number::int FROM (
       SELECT id, row_number() OVER (PARTITION BY reference_dataset_id ORDER BY created_at, id) AS number FROM projects
       WHERE workspace_id = $1 AND reference_dataset_id = ANY($2) AND deleted_at IS NULL) AS numbered
     WHERE id = ANY($3)`,
    [workspaceId, [...datasetIds], projects.map(({ id }) => id)],
  );
  return new Map(rows.map(({ id, number }) => [id, number]));
}
