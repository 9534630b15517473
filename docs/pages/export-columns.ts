import { type RunParquetColumn, runParquetColumns } from '../../schemas/parquet/run-columns.ts';
import { code, type Page, page, table } from './markdown.ts';

export function exportColumnsPage(): Page {
  const columns: readonly RunParquetColumn[] = runParquetColumns;
  const groups = [...new Set(columns.map(({ group }) => group))];
  return page(
    'export-columns.md',
    'Columns of exported runs',
    'schemas/parquet/run-columns.ts',
    'Bulk exports write these columns, or the subset that `export_fields` lists, in the order of `export_fields`. Values are those that ' +
      '`POST /runs/query` returns at the moment when the file is written; `tenant_id` and `is_root` exist only in exports.',
    'Types are DuckDB types. In Parquet, `VARCHAR` is a string, `VARCHAR[]` a list of strings, `BIGINT` INT64, ' +
      '`TIMESTAMP` a timestamp in microseconds that is UTC by convention, and `TIMESTAMP WITH TIME ZONE` one that is marked as UTC.',
    'Files are sorted by the start time in `dotted_order`, ties by trace and id. A row group has 120,000 rows or about 32 MB, ' +
      'whichever is less. `v1` files are stored under `runs/year=…/month=…/day=…`, `v2_beta` files under ' +
      '`resource=runs/year=…/month=…/day=…`, which readers of Hive partitioning expose as columns.',
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
