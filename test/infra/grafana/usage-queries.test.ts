import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { markHoursDirty } from '../../../pipelines/usage/mark-hours-dirty.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { insertRuns, type RunRow, runRow, toDirtyHours } from '../../pipelines/usage/trace-rows.ts';
import { dashboards, queries } from './dashboard-files.ts';
import { expandMacros, type PanelScope } from './macros.ts';

type Row = Readonly<Record<string, string | number | null>>;

const dayMs = 86_400_000;
const [organizationId, ...workspaces] = Array.from({ length: 3 }, () => randomUUID());
const projects = workspaces.flatMap((workspaceId, at) =>
  ['agent', 'search'].map((name) => ({ id: randomUUID(), workspaceId, name: `${name} ${at}` })),
);
const users = ['ann', 'bob'].map((name) => ({ id: randomUUID(), name: `${name}@example.org` }));
const keys = ['rl_one...', 'rl_two...'].map((name) => ({ id: randomUUID(), name }));

/** Grafana's Postgres role, with a unique name because the engine is shared. */
const role = `grafana_${randomBytes(6).toString('hex')}`;
const password = "it's secret";
let stores: FreshStores;
let grafana: pg.Client;
let rows: RunRow[];
let scope: PanelScope;

/** Returns traces of this month and the last one, none of them in the future: [days ago, project, number of traces]. */
function traces(nowMs: number): RunRow[] {
  const startOfMonthMs = Date.UTC(new Date(nowMs).getUTCFullYear(), new Date(nowMs).getUTCMonth());
  const times = [nowMs, startOfMonthMs, startOfMonthMs - 1, startOfMonthMs - 5 * dayMs, startOfMonthMs - 20 * dayMs];
  return times.flatMap((timeMs, at) =>
    projects.flatMap(({ id: projectId, workspaceId: tenantId }, project) =>
      Array.from({ length: project + at + 1 }, (_, trace) =>
        runRow({
          tenantId,
          projectId,
          traceMicros: timeMs * 1_000,
          userId: users[trace % users.length]?.id as string,
          keyId: keys[(trace + at) % keys.length]?.id as string,
        }),
      ),
    ),
  );
}

/** Returns the statements of the script that Postgres runs when it creates its data folder, as psql sends them. */
function readersScript(): string {
  const values: Record<string, string> = { registry_password: 'unused', grafana_password: password };
  return readFileSync(new URL('../../../infra/docker/postgres/10-readers.sql', import.meta.url), 'utf8')
    .replace(/^\\getenv .*$/gm, '')
    .replace(/^CREATE (ROLE registry|DATABASE) .*$/gm, '')
    .replace(/:'(\w+)'/g, (_, name) => pg.escapeLiteral(values[name] ?? ''))
    .replace(/\bgrafana\b/g, role);
}

/** Queries ClickHouse as Grafana does: over HTTP, read-only, without any other setting of Runlake. */
async function askClickHouse(sql: string): Promise<Row[]> {
  const url = new URL(stores.clickhouseUrl);
  const parameters = new URLSearchParams({
    database: url.pathname.slice(1),
    default_format: 'JSON',
    output_format_json_quote_64bit_integers: '0',
    readonly: '2',
  });
  const answer = await fetch(`${url.origin}/?${parameters}`, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': url.username, 'X-ClickHouse-Key': url.password },
  });
  if (!answer.ok) throw new Error(`${await answer.text()} in ${sql}`);
  return ((await answer.json()) as { data: Row[] }).data;
}

const ask = ({ target }: (typeof queries)[number]): Promise<Row[]> => {
  const sql = expandMacros(target.rawSql as string, scope);
  return target.datasource.type === 'grafana-clickhouse-datasource'
    ? askClickHouse(sql)
    : grafana.query<Row>(sql).then((answer) => answer.rows);
};
const usage = queries.filter(({ dashboard }) => dashboard.uid === 'runlake-usage');
const findTarget = (title: string, refId = 'A') => {
  const found = usage.find(({ panel, target }) => panel.title === title && target.refId === refId);
  if (found === undefined) throw new Error(`no panel ${title}`);
  return found;
};
const sum = (found: readonly Row[], column: string) => found.reduce((total, row) => total + Number(row[column]), 0);

beforeAll(async () => {
  stores = await freshStores();
  const { database, clickhouse } = stores;
  await database.query('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [organizationId, 'Ours']);
  for (const [at, id] of workspaces.entries()) {
    const values = [id, organizationId, `Workspace ${at}`];
    await database.query('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', values);
  }
  for (const { id, workspaceId, name } of projects) {
    await database.query('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [id, workspaceId, name]);
  }
  // The deletion of a project does not delete its usage.
  await database.query('UPDATE projects SET deleted_at = now() WHERE id = $1', [projects[0]?.id]);
  for (const { id, name } of users) {
    await database.query('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
      id,
      organizationId,
      name,
    ]);
  }
  for (const { id, name } of keys) {
    await database.query(
      `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions)
       VALUES ($1, $2, $3, $4, $5, '', '{*}')`,
      [id, organizationId, users[0]?.id, randomBytes(32), name],
    );
  }
  const nowMs = Date.now();
  rows = traces(nowMs);
  await insertRuns(clickhouse, rows);
  await markHoursDirty(database, toDirtyHours(rows));
  await runRollUp({ database, clickhouse });
  scope = {
    fromMs: nowMs - 70 * dayMs,
    toMs: nowMs,
    intervalSeconds: 86_400,
    variables: { workspace: workspaces },
  };

  const setupClient = new pg.Client(stores.databaseUrl);
  await setupClient.connect();
  await setupClient.query(readersScript());
  await setupClient.end();
  const url = new URL(stores.databaseUrl);
  url.username = role;
  url.password = encodeURIComponent(password);
  grafana = new pg.Client(url.href);
  await grafana.connect();
});

afterAll(async () => {
  await grafana?.end();
  const cleanupClient = new pg.Client(stores.databaseUrl);
  await cleanupClient.connect();
  await cleanupClient.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  await cleanupClient.end();
  await stores.close();
});

it.each(usage.map((query) => [query.name, query] as const))('%s returns rows', async (_name, query) => {
  expect(await ask(query)).not.toEqual([]);
});

it('the variable lists the workspaces by name', async () => {
  const [variable] = dashboards.flatMap(({ templating }) => templating.list);
  const { rows: found } = await grafana.query(variable?.query as string);
  expect(found).toEqual(workspaces.map((id, at) => ({ __text: `Workspace ${at}`, __value: id })));
});

describe('the counts', () => {
  const startOfMonthMs = () => Date.UTC(new Date(scope.toMs).getUTCFullYear(), new Date(scope.toMs).getUTCMonth());
  const posted = (fromMs: number, untilMs = Number.POSITIVE_INFINITY) =>
    rows.filter(({ traceMicros }) => traceMicros >= fromMs * 1_000 && traceMicros < untilMs * 1_000);

  it('equal the stored traces for every grouping', async () => {
    expect(sum(await ask(findTarget('Traces in the time range')), 'counted')).toBe(rows.length);
    for (const dimension of ['workspace', 'project', 'user', 'API key']) {
      expect(sum(await ask(findTarget(`Traces by ${dimension}`)), 'counted'), dimension).toBe(rows.length);
    }
    expect(sum(await ask(findTarget('Top projects')), 'counted')).toBe(rows.length);
    expect(sum(await ask(findTarget('Top projects')), 'share')).toBeCloseTo(1);
  });

  it('are limited to the selected workspaces', async () => {
    const one = { ...scope, variables: { workspace: workspaces.slice(0, 1) } };
    const { target } = findTarget('Traces in the time range');
    const found = await askClickHouse(expandMacros(target.rawSql as string, one));
    expect(sum(found, 'counted')).toBe(rows.filter(({ tenantId }) => tenantId === workspaces[0]).length);
  });

  it('compare this month with the last one', async () => {
    const thisMonth = posted(startOfMonthMs()).length;
    const startOfLastMonthMs = Date.UTC(
      new Date(startOfMonthMs() - 1).getUTCFullYear(),
      new Date(startOfMonthMs() - 1).getUTCMonth(),
    );
    const lastMonth = posted(startOfLastMonthMs, startOfMonthMs()).length;
    expect(sum(await ask(findTarget('This month')), 'counted')).toBe(thisMonth);
    expect(sum(await ask(findTarget('Last month')), 'counted')).toBe(lastMonth);
    const byProject = await ask(findTarget('This month against last, by project'));
    expect(sum(byProject, 'this_month')).toBe(thisMonth);
    expect(sum(byProject, 'last_month')).toBe(lastMonth);
    const byDay = await ask(findTarget('This month against last, day by day'));
    expect(byDay.map(({ day }) => day)).toEqual(Array.from({ length: 31 }, (_, at) => at + 1));
    expect(byDay.findLast((row) => row['This month'] !== null)?.['This month']).toBe(thisMonth);
    expect(byDay.at(-1)?.['Last month']).toBe(lastMonth);
  });

  it.each([
    ['Traces by workspace', () => workspaces.map((_, at) => `Workspace ${at}`)],
    ['Traces by project', () => projects.map(({ name }) => name)],
    ['Traces by user', () => users.map(({ name }) => name)],
    ['Traces by API key', () => keys.map(({ name }) => name)],
    ['Top projects', () => projects.map(({ name }) => name)],
    ['This month against last, by project', () => projects.map(({ name }) => name)],
  ])('%s: each count finds its name by the joined field', async (title, named) => {
    const query = findTarget(title);
    expect(query.panel.transformations?.[0]).toEqual({
      id: 'joinByField',
      options: { byField: 'item', mode: 'inner' },
    });
    const names = new Map((await ask(findTarget(title, 'B'))).map(({ item, name }) => [item, name]));
    const counted = (await ask(query)).map(({ item }) => names.get(item as string));
    expect([...new Set(counted)].sort()).toEqual(named().sort());
  });
});

describe('the Grafana role in Postgres', () => {
  it.each([
    ['tables', 'SELECT hash FROM api_keys', '42501'],
    ['other dimensions', "SELECT * FROM dashboards.names('secrets')", 'P0001'],
    ['writing', 'CREATE TABLE public.theirs (a int)', '25006'],
  ])('is refused %s', async (_what, sql, code) => {
    await expect(grafana.query(sql)).rejects.toMatchObject({ code });
  });
});
