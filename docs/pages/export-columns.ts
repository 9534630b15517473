import { type RunParquetColumn, runParquetColumns } from '../../schemas/parquet/run-columns.ts';
import { code, type Page, page, table } from './markdown.ts';

export function exportColumnsPage(): Page {
  const columns: readonly RunParquetColumn[] = runParquetColumns;
  const groups = [...new Set(columns.map(({ group }) => group))];
  return page(
    'export-columns.md',
    'Columns of exported runs',
    'schemas/parquet/run-columns.ts',
    'Bulk exports write these columns, or those of them that `export_fields` names, in its order. Values are those that ' +
      '`POST /runs/query` answers at the moment when the file is made; `tenant_id` and `is_root` are of exports alone.',
    'Types are given in the words of DuckDB. In Parquet, `VARCHAR` is a string, `VARCHAR[]` a list of strings, `BIGINT` INT64, ' +
      '`TIMESTAMP` a timestamp in microseconds that is UTC by agreement, and `TIMESTAMP WITH TIME ZONE` one that says so itself.',
    'Files are sorted by the start time in `dotted_order`, ties by trace and id. A row group has 120,000 rows or about 32 MB, ' +
      'whichever is less. `v1` files lie below `runs/year=…/month=…/day=…`, those of `v2_beta` below ' +
      '`resource=runs/year=…/month=…/day=…`, which a reader of Hive layouts takes as columns.',
    ...groups.flatMap((group) => [
      `## ${group}`,
      table(
        ['Column', '`v1`', '`v2_beta`', 'Unit or form', 'Null when', 'Example', 'Meaning'],
        columns
          .filter((column) => column.group === group)
          .map(({ name, type, unit, nullWhen, example, text }) => [
            code(name),
            code(type.v1),
            code(type.v2_beta),
            unit,
            nullWhen ?? 'never',
            code(example),
            text,
          ]),
      ),
    ]),
  );
}
