import type { Sql } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { Conditions, live } from './item-columns.ts';

export interface NamespaceSearch {
  /** Labels that namespaces begin or end with; `*` stands for any label. */
  readonly matches: readonly { readonly side: 'prefix' | 'suffix'; readonly labels: readonly string[] }[];
  /** Maximum number of labels; longer namespaces are truncated. */
  readonly maxDepth?: number | undefined;
  /** Filter of custom authentication. Returns only namespaces that have an item which matches it. */
  readonly required?: RequiredMetadata | undefined;
  readonly limit: number;
  readonly offset: number;
}

/** Lists the distinct namespaces that have items, sorted by their labels. */
export async function listNamespaces(sql: Sql, deploymentId: string, search: NamespaceSearch): Promise<string[][]> {
  const conditions = new Conditions(deploymentId);
  for (const { side, labels } of search.matches) {
    conditions.add(`cardinality(namespace) >= ${conditions.bind(labels.length)}`);
    for (const [index, label] of labels.entries()) {
      if (label === '*') continue;
      const at = side === 'prefix' ? `${index + 1}` : `cardinality(namespace) - ${labels.length - index - 1}`;
      conditions.add(`namespace[${at}] = ${conditions.bind(label.replaceAll('\0', ''))}`);
    }
    const stars = labels.indexOf('*');
    if (side === 'prefix') conditions.under(stars < 0 ? labels : labels.slice(0, stars));
  }
  conditions.holding(search.required);
  const cut = search.maxDepth === undefined ? 'namespace' : `namespace[1:${conditions.bind(search.maxDepth)}::int]`;
  const rows = await sql.query<{ namespace: string[] }>(
    `SELECT DISTINCT ${cut} AS namespace FROM agents.store_items WHERE deployment_id = $1 AND ${live}${conditions.text}
     ORDER BY 1 LIMIT ${conditions.bind(search.limit)} OFFSET ${conditions.bind(search.offset)}`,
    conditions.values,
  );
  return rows.map(({ namespace }) => namespace);
}
