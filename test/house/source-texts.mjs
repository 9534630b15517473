// The sources that the checks read, and what is written in them as code and as text, comments left out.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import ts from 'typescript';

/** Files that git knows or would add and whose path matches. */
export function filesLike(pattern) {
  const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' });
  return listed
    .trim()
    .split('\n')
    .filter((file) => pattern.test(file) && existsSync(file));
}

/** All that a TypeScript or JavaScript file says in strings and templates; an expression within a template reads `${}`. */
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

/** The file without its comments and texts, line by line. */
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

/** Ends the process where a rule is broken, or where a rule no longer finds the example that it is made for. */
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
