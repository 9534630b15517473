import { describe, expect, it } from 'vitest';
import { dashboards, dataSources, providers, queries } from './dashboard-files.ts';

const cells = ({ gridPos: { x, y, w, h } }: (typeof dashboards)[number]['panels'][number]) =>
  Array.from({ length: w * h }, (_, at) => `${x + (at % w)} ${y + Math.floor(at / w)}`);

describe('the dashboards', () => {
  it('are a usage and a pipeline dashboard with unique ids', () => {
    expect(dashboards.map(({ uid }) => uid).sort()).toEqual(['runlake-pipeline', 'runlake-usage']);
    expect(new Set(dashboards.map(({ title }) => title)).size).toBe(dashboards.length);
  });

  it.each(dashboards)('$file: panels have unique ids and do not overlap', (dashboard) => {
    expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(39);
    const ids = dashboard.panels.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { gridPos, title } of dashboard.panels) expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
    const taken = dashboard.panels.flatMap(cells);
    expect(taken.length).toBe(new Set(taken).size);
  });

  it.each(
    dashboards.flatMap(({ file, panels }) =>
      panels.filter(({ type }) => type !== 'row').map((panel) => [`${file}: ${panel.title}`, panel] as const),
    ),
  )('%s has a unit, a query, and sources that are provisioned', (_name, panel) => {
    expect(panel.fieldConfig?.defaults.unit).toMatch(/^\w+$/);
    expect(panel.targets?.length).toBeGreaterThan(0);
    const refIds = panel.targets?.map(({ refId }) => refId);
    expect(new Set(refIds).size).toBe(refIds?.length);
    const sources = panel.targets?.map(({ datasource }) => datasource) ?? [];
    for (const { uid, type } of sources) expect(dataSources).toContainEqual(expect.objectContaining({ uid, type }));
    const own = new Set(sources.map(({ uid }) => uid));
    expect(panel.datasource?.uid).toBe(own.size === 1 ? sources[0]?.uid : '-- Mixed --');
  });

  it('query each source in its own language', () => {
    for (const { target, name } of queries) {
      const asked = target.datasource.type === 'prometheus' ? target.expr : target.rawSql;
      expect(asked?.trim(), name).toBeTruthy();
    }
  });

  it('use variables of provisioned sources only', () => {
    const variables = dashboards.flatMap(({ templating }) => templating.list);
    expect(variables.map(({ name }) => name)).toEqual(['workspace']);
    for (const { datasource } of variables) {
      expect(dataSources).toContainEqual(expect.objectContaining({ uid: datasource.uid, type: datasource.type }));
    }
  });
});

describe('the provisioning', () => {
  it('defines each source once', () => {
    expect(new Set(dataSources.map(({ uid }) => uid)).size).toBe(dataSources.length);
  });

  it('contains no password', () => {
    for (const { secureJsonData = {} } of dataSources) {
      for (const value of Object.values(secureJsonData)) expect(value).toMatch(/^\$[A-Z_]+$/);
    }
  });

  it('loads the dashboards from their folder', () => {
    expect(providers).toEqual([
      expect.objectContaining({ type: 'file', options: { path: '/etc/grafana/dashboards' } }),
    ]);
  });
});
