// The build compiles only TypeScript; the files in schemas/ are read at run time.
import { cpSync } from 'node:fs';

for (const folder of ['avro', 'clickhouse', 'postgres']) {
  cpSync(
    new URL(`../../schemas/${folder}`, import.meta.url),
    new URL(`../../dist/schemas/${folder}`, import.meta.url),
    {
      recursive: true,
    },
  );
}
