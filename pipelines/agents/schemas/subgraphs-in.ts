import type * as ts from 'typescript';
import type { TypeReading } from './json-schema-of-type.ts';

/**
 * The graphs that are nodes of an exported graph, by namespace, from the calls of `addNode` that it is made with; those of their own as
 * far as they are declared in modules of the project.
 */
export function subgraphsIn(exported: ts.Symbol, reading: TypeReading): Map<string, ts.Type> {
  const found = new Map<string, ts.Type>();
  collect(exported, '', reading, found);
  return found;
}

function collect(symbol: ts.Symbol, within: string, reading: TypeReading, found: Map<string, ts.Type>): void {
  const { ts, checker } = reading;
  const target = (symbol.flags & ts.SymbolFlags.Alias) !== 0 ? checker.getAliasedSymbol(symbol) : symbol;
  const seen = new Set<ts.Symbol>();
  for (const declaration of target.declarations ?? []) {
    visit(declaration);
  }

  /** Looks through what the declaration is made of: `const graph = builder.compile()` leads to `builder`. */
  function visit(node: ts.Node): void {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      if (node.expression.name.text === 'addNode') for (const [name, value] of nodesOf(node)) add(name, value);
      const made = checker.getSymbolAtLocation(rootOf(node.expression.expression));
      if (made !== undefined) follow(made);
    }
    ts.forEachChild(node, visit);
  }

  function follow(made: ts.Symbol): void {
    if (seen.has(made) || seen.size > 100) return;
    seen.add(made);
    for (const declaration of made.declarations ?? []) {
      if (!ts.isVariableDeclaration(declaration) || declaration.getSourceFile().isDeclarationFile) continue;
      visit(declaration);
      // `builder.addNode(…)` as statements of their own.
      const { name } = declaration;
      const statements = declaration.parent.parent.parent;
      if (ts.isIdentifier(name) && (ts.isSourceFile(statements) || ts.isBlock(statements))) {
        for (const statement of statements.statements) {
          if (
            ts.isExpressionStatement(statement) &&
            checker.getSymbolAtLocation(rootOf(statement.expression)) === made
          ) {
            visit(statement);
          }
        }
      }
    }
  }

  function rootOf(node: ts.Node): ts.Node {
    if (ts.isCallExpression(node) || ts.isPropertyAccessExpression(node)) return rootOf(node.expression);
    return node;
  }

  function nodesOf(call: ts.CallExpression): [string, ts.Expression][] {
    const [first, second] = call.arguments;
    if (first !== undefined && second !== undefined && ts.isStringLiteralLike(first)) return [[first.text, second]];
    if (first === undefined || !ts.isObjectLiteralExpression(first)) return [];
    return first.properties
      .filter((each) => ts.isPropertyAssignment(each))
      .map((each) => [each.name.getText().replaceAll(/^['"]|['"]$/g, ''), each.initializer]);
  }

  function add(name: string, value: ts.Expression): void {
    const type = checker.getTypeAtLocation(value);
    if (type.getProperty('lg_is_pregel') === undefined) return;
    const namespace = within === '' ? name : `${within}|${name}`;
    if (found.has(namespace) || namespace.split('|').length > 10) return;
    found.set(namespace, type);
    const inner = checker.getSymbolAtLocation(value);
    if (inner !== undefined) collect(inner, namespace, reading, found);
  }
}
