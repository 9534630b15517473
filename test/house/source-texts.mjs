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

let parsed = {};

/** The syntax tree of a file. Functions that are called for the same file one after another share it. */
export function parse(file, source = readFileSync(file, 'utf8')) {
  if (parsed.file !== file || parsed.source !== source)
    parsed = { file, source, tree: ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true) };
  return parsed.tree;
}

/** Every string and template of a TypeScript or JavaScript file; expressions in a template are replaced by `${}`. */
export function textsOf(file, source = readFileSync(file, 'utf8')) {
  const tree = parse(file, source);
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
  const tree = parse(file, source);
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

/** Every comment of a TypeScript or JavaScript file, line by line, including those behind code. */
export function commentsOf(file, source = readFileSync(file, 'utf8')) {
  const tree = parse(file, source);
  const starts = new Map();
  const visit = (node) => {
    if (node.getChildCount(tree) > 0) return node.getChildren(tree).forEach(visit);
    // What stands between two tokens: comments and white space.
    const ranges = [
      ...(ts.getLeadingCommentRanges(source, node.getFullStart()) ?? []),
      ...(ts.getTrailingCommentRanges(source, node.getEnd()) ?? []),
    ];
    for (const { pos, end } of ranges) starts.set(pos, end);
  };
  visit(tree);
  return [...starts].flatMap(([pos, end]) => {
    const first = tree.getLineAndCharacterOfPosition(pos).line + 1;
    return source
      .slice(pos, end)
      .split('\n')
      .map((text, index) => ({ file, line: first + index, text }));
  });
}

/** Fails the check if a text violates a rule, or if a rule no longer matches its example. */
export function applyRules(rules, found) {
  let broken = 0;
  const complain = (words) => {
    broken += 1;
    console.error(words);
  };
  for (const { rule, breaks, example, exempt = /^$/, applies = /./ } of rules) {
    if (example !== undefined && !breaks(example)) complain(`the rule "${rule}" does not find "${example}"`);
    for (const { file, line, text } of found) {
      if (applies.test(file) && !exempt.test(file) && breaks(text)) {
        complain(`${file}:${line}: ${rule}: ${text.trim().replace(/\s+/g, ' ').slice(0, 160)}`);
      }
    }
  }
  if (broken > 0) process.exitCode = 1;
}
