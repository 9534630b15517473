// House rule: SQL avoids constructs that ClickHouse executes incorrectly or slowly without an error. Each rule stands
// for a defect that small tests do not show, because their data is already merged or short.
import { readFileSync } from 'node:fs';
import { applyRules, filesLike, textsOf } from './source-texts.mjs';

const schemas = filesLike(/^schemas\/clickhouse\/.*\.sql$/).map((file) => ({
  file,
  line: 1,
  text: readFileSync(file, 'utf8').replace(/--.*$/gm, ''),
}));
const tables = schemas.flatMap(({ text }) => [...text.matchAll(/CREATE TABLE (\w+)/g)].map(([, name]) => name));

const lightweightDelete = new RegExp(`\\bDELETE\\s+FROM\\s+(\\$\\{\\}|(?:${tables.join('|')})\\b)`, 'i');
const final = /\bFINAL\b/;

const rules = [
  {
    rule: 'a member of pick by name reads unmerged rows under FINAL: take pick.3',
    breaks: (text) => /\bpick\.[a-z_]/i.test(text),
    example: 'SELECT pick.session_id FROM traces FINAL',
  },
  {
    rule: 'a subcolumn by name reads unmerged rows under FINAL: take isNull(x), length(x)',
    breaks: (text) => /\b\w+\.(null|size\d*)\b(?!\()/.test(text),
    example: 'SELECT id FROM runs FINAL WHERE post_error.null',
  },
  {
    rule: 'a lightweight DELETE lets a late patch bring half a run back: set deleted_at, or ALTER TABLE … DELETE',
    breaks: (text) => lightweightDelete.test(text),
    example: 'DELETE FROM runs WHERE id = 1',
  },
  {
    rule: 'a condition on first_received_at hides runs that were patched later',
    breaks: (text) =>
      /\bfirst_received_at\s*([<>=!]|BETWEEN\b|IN\b)|[<>=]\s*first_received_at\b/i.test(text) ||
      (final.test(text) && /\bWHERE\b[\s\S]*\bfirst_received_at\b/i.test(text)),
    example: 'SELECT id FROM runs FINAL WHERE first_received_at > now()',
    // Evaluated on the merged row or on the minimum of all rows, which never changes.
    exempt: /^pipelines\/(exports\/members|retention\/delete-traces)\.ts$/,
  },
  {
    rule: 'newest first under FINAL reads everything: only the page query does it, slice by slice',
    breaks: (text) => final.test(text) && /\bORDER BY\b[\s\S]*?\bstart_time\s+(DESC\b|\$\{\})/i.test(text),
    example: 'SELECT id FROM runs FINAL ORDER BY start_time DESC LIMIT 100',
    exempt: /^pipelines\/runs\/find-page\.ts$/,
  },
  {
    rule: 'a tuple comparison alone prunes nothing: pages and slices do it, within plain bounds on start_time',
    breaks: (text) => /\([^()]*\bstart_time\b[^()]*,[^()]*\)\s*([<>]|\$\{\})/.test(text),
    example: 'SELECT id FROM runs WHERE (start_time, id) < (1, 2)',
    exempt: /^pipelines\/(runs\/key-query|exports\/members)\.ts$/,
  },
];

applyRules(rules, [
  ...schemas,
  ...filesLike(/^(schemas|infra|pipelines|api)\/.*\.ts$/).flatMap((file) => textsOf(file)),
]);
