// Copies schemas/ to dist/, because the build compiles only TypeScript and the program reads these files at run time.
import { cpSync } from 'node:fs';

for (const folder of ['avro', 'clickhouse', 'main-api', 'postgres']) {
  cpSync(
    new URL(`../../schemas/${folder}`, import.meta.url),
    new URL(`../../dist/schemas/${folder}`, import.meta.url),
    {
      recursive: true,
    },
  );
}
