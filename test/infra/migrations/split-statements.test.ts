import { describe, expect, it } from 'vitest';
import { splitStatements } from '../../../infra/migrations/apply-clickhouse.ts';

describe('splitStatements', () => {
  it.each<[string, string, string[]]>([
    ['nothing', '', []],
    ['blanks and semicolons', ' ;\n; ', []],
    ['two statements', 'SELECT 1; SELECT 2;', ['SELECT 1', 'SELECT 2']],
    ['no semicolon at the end', 'SELECT 1;\nSELECT 2', ['SELECT 1', 'SELECT 2']],
    ['a semicolon in a string', "SELECT ';'; SELECT 2", ["SELECT ';'", 'SELECT 2']],
    ['a doubled quote in a string', "SELECT 'it''s;'; SELECT 2", ["SELECT 'it''s;'", 'SELECT 2']],
    ['an escaped quote in a string', "SELECT 'it\\'s;'; SELECT 2", ["SELECT 'it\\'s;'", 'SELECT 2']],
    ['an escaped backslash before the end', "SELECT '\\\\'; SELECT 2", ["SELECT '\\\\'", 'SELECT 2']],
    ['semicolons in quoted names', 'SELECT `a;b`, "c;d"; SELECT 2', ['SELECT `a;b`, "c;d"', 'SELECT 2']],
    ['a line comment', "SELECT 1 -- not; 'here\n, 2; SELECT 3", ['SELECT 1  \n, 2', 'SELECT 3']],
    ['a block comment', "SELECT 1 /* not; 'here\n */, 2", ['SELECT 1  , 2']],
    ['a comment without an end', 'SELECT 1; /* ; SELECT 2', ['SELECT 1']],
    ['a comment of the shell', '#! note; this\nSELECT 1; # and; this', ['SELECT 1']],
    ['only comments', '-- nothing;\n/* at all; */;', []],
    ['what only looks like a comment', "SELECT '--', '/*', 1 - -1, '#!'", ["SELECT '--', '/*', 1 - -1, '#!'"]],
    ['an arrow and a division', 'SELECT x -> x / 2', ['SELECT x -> x / 2']],
  ])('%s', (_, sql, statements) => {
    expect(splitStatements(sql)).toEqual(statements);
  });
});
