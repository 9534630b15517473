// Source files for the checks, split into code and string literals, without comments.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import ts from 'typescript';

/** Files that git tracks or would add and whose path matches. */
export function filesLike(pattern) {
  const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' });
  return listed
    .trim()
    .split('\n')
    .filter((file) => pattern.test(file) && existsSync(file));
}

/** Every string and template of a TypeScript or JavaScript file; expressions in a template are replaced by `${}`. */
export function textsOf(file, source = readFileSync(file, 'utf8')) {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const found = [];
  const add = (node, text) =>
    found.push({ file, line: tree.getLineAndCharacterOfPosition(node.getStart()).line + 1, text });
  const visit = (node) => {
    if (ts.isStringLiteralLike(node)) add(node, node.text);
    if (ts.isTemplateExpression(node)) {
      add(node, node.head.text + node.templateSpans.map(({ literal }) => `\${}${literal.text}`).join(''));
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

/** The code of the file by line, without comments and strings. */
export function codeOf(file, source = readFileSync(file, 'utf8')) {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true);
  const words = new Map();
  const visit = (node) => {
    const children = node.getChildren(tree);
    if (children.length === 0 && !ts.isStringLiteralLike(node) && node.kind < ts.SyntaxKind.FirstJSDocNode) {
      const line = tree.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      words.set(line, [...(words.get(line) ?? []), node.getText()]);
    }
    children.forEach(visit);
  };
  visit(tree);
  return [...words].map(([line, tokens]) => ({ file, line, text: tokens.join(' ') }));
}

/** Exits with an error if a rule is violated, or if a rule no longer matches its example. */
export function judge(rules, pieces) {
  let broken = 0;
  const complain = (words) => {
    broken += 1;
    console.error(words);
  };
  for (const { rule, breaks, example, exempt = /^$/, applies = /./ } of rules) {
    if (example !== undefined && !breaks(example)) complain(`the rule "${rule}" does not find "${example}"`);
    for (const { file, line, text } of pieces) {
      if (applies.test(file) && !exempt.test(file) && breaks(text)) {
        complain(`${file}:${line}: ${rule}: ${text.trim().replace(/\s+/g, ' ').slice(0, 160)}`);
      }
    }
  }
  if (broken > 0) process.exit(1);
}
