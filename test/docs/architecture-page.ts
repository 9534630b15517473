import { readFileSync } from 'node:fs';

const page = readFileSync('docs/architecture.md', 'utf8');

/** Sections of docs/architecture.md that follow a path through the code, by heading. */
export const paths = new Map(
  page
    .split(/^## /m)
    .slice(1)
    .map((section) => [section.split('\n', 1)[0] ?? '', listFiles(section)]),
);

/** Files that the page names. */
export const namedFiles = listFiles(page);

/**
 * Files that a reader opens to follow a run from HTTP to Parquet, with Kafka and S3. A file of `schemas/` has no
 * functions; it is a contract that the page quotes.
 */
export const filesOfTracedRun = new Set(
  [...(paths.get('A traced run') ?? []), ...(paths.get('A bulk export') ?? [])].filter(
    (file) => !file.startsWith('schemas/'),
  ),
);

function listFiles(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(/`([\w./-]+\.(?:ts|mjs|sql|json))`/g)].map(([, path]) => path as string));
}
