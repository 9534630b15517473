export interface PanelScope {
  readonly fromMs: number;
  readonly toMs: number;
  readonly intervalSeconds: number;
  /** Values of the dashboard's variables. */
  readonly variables: Readonly<Record<string, readonly string[]>>;
}

/**
 * Expands everything that Grafana's ClickHouse and Postgres sources expand before they send a query: the macros that
 * these dashboards use, and variables with the format `singlequote`. Source: the macro table in the documentation of
 * the ClickHouse data source.
 *
 * @throws if a macro or variable remains, because Grafana would send it unchanged.
 */
export function expandMacros(sql: string, { fromMs, toMs, intervalSeconds, variables }: PanelScope): string {
  const time = (ms: number) => `toDateTime(${Math.floor(ms / 1_000)})`;
  const written = sql
    .replace(/\$__timeFilter\((\w+)\)/g, (_, column) => `${column} >= ${time(fromMs)} AND ${column} <= ${time(toMs)}`)
    .replace(
      /\$__timeInterval\((\w+)\)/g,
      (_, column) => `toStartOfInterval(toDateTime(${column}), INTERVAL ${intervalSeconds} second)`,
    )
    .replace(/\$\{(\w+):singlequote\}/g, (whole, name) => {
      const values = variables[name];
      return values === undefined ? whole : values.map((value) => `'${value.replaceAll("'", "\\'")}'`).join(',');
    });
  const left = /\$(__)?\{?\w+/.exec(written);
  if (left !== null) throw new Error(`not expanded: ${left[0]} in ${sql}`);
  return written;
}
