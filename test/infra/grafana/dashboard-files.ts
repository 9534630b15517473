import { readdirSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';

/** The Grafana files, reduced to the fields that the tests need. */
export interface DataSourceRef {
  readonly type: string;
  readonly uid: string;
}

export interface Target {
  readonly refId: string;
  readonly datasource: DataSourceRef;
  readonly rawSql?: string;
  readonly expr?: string;
  readonly legendFormat?: string;
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly datasource?: DataSourceRef;
  readonly targets?: readonly Target[];
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly transformations?: readonly { readonly id: string; readonly options: Readonly<Record<string, unknown>> }[];
}

export interface Variable {
  readonly name: string;
  readonly type: string;
  readonly datasource: DataSourceRef;
  readonly query: string;
}

export interface Dashboard {
  readonly file: string;
  readonly uid: string;
  readonly title: string;
  readonly schemaVersion: number;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
}

export interface DataSource extends DataSourceRef {
  readonly name: string;
  readonly url?: string;
  readonly user?: string;
  readonly jsonData: Readonly<Record<string, string | number>>;
  readonly secureJsonData?: Readonly<Record<string, string>>;
}

const folder = new URL('../../../infra/grafana/', import.meta.url);
const read = (path: string) => readFileSync(new URL(path, folder), 'utf8');

export const dashboards: readonly Dashboard[] = readdirSync(new URL('dashboards/', folder))
  .filter((file) => file.endsWith('.json'))
  .map((file) => ({ ...JSON.parse(read(`dashboards/${file}`)), file }));

export const dataSources: readonly DataSource[] = parse(read('provisioning/datasources/runlake.yaml')).datasources;

export const providers: readonly { readonly type: string; readonly options: { readonly path: string } }[] = parse(
  read('provisioning/dashboards/runlake.yaml'),
).providers;

/** Every query of every panel, each with a name for test titles. */
export const queries = dashboards.flatMap((dashboard) =>
  dashboard.panels.flatMap((panel) =>
    (panel.targets ?? []).map((target) => ({
      name: `${dashboard.uid} / ${panel.title} / ${target.refId}`,
      dashboard,
      panel,
      target,
    })),
  ),
);
