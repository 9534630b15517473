import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';

/**
 * Returns the packages that `entry` loads by static imports. Type-only imports are ignored, because they are erased.
 */
function listPackages(entry: string): string[] {
  const files = new Set<string>();
  const packages = new Set<string>();
  const load = (file: string) => {
    if (files.has(file)) return;
    files.add(file);
    const { outputText } = ts.transpileModule(readFileSync(file, 'utf8'), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true },
    });
    for (const statement of ts.createSourceFile(file, outputText, ts.ScriptTarget.Latest).statements) {
      if (!ts.isImportDeclaration(statement) && !ts.isExportDeclaration(statement)) continue;
      const { moduleSpecifier } = statement;
      if (moduleSpecifier === undefined || !ts.isStringLiteral(moduleSpecifier)) continue;
      if (moduleSpecifier.text.startsWith('.')) load(join(dirname(file), moduleSpecifier.text));
      else if (!moduleSpecifier.text.startsWith('node:')) packages.add(moduleSpecifier.text);
    }
  };
  load(entry);
  return [...packages];
}

// Decision 0061: each package adds tens to hundreds of milliseconds to every start, so load it where it is first used.
it.each([
  ['api/command-line/start-agents.ts', /^(@langchain\/langgraph$|@langchain\/langgraph-|@aws-sdk|re2js|avsc|kafkajs)/],
  ['api/command-line/doctor.ts', /^(@langchain|@aws-sdk|avsc|kafkajs|uuid)/],
  ['api/command-line/main-api-services.ts', /^(@langchain|@aws-sdk|avsc|kafkajs|@duckdb)/],
  ['api/command-line/start-workers.ts', /^(@langchain|@aws-sdk|avsc|kafkajs|@duckdb|uuid)/],
  [
    'pipelines/agents/workers/child/worker-process.ts',
    /^(@aws-sdk|avsc|kafkajs|@duckdb|fastify|undici|uuid|lru-cache)/,
  ],
])('%s loads no package that its start does not need', (entry, unneeded) => {
  expect(listPackages(entry).filter((name) => unneeded.test(name))).toEqual([]);
});

it('finds packages behind other modules', () => {
  expect(listPackages('pipelines/agents/workers/child/worker-process.ts')).toContain('@langchain/langgraph');
});
