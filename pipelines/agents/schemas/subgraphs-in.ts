import type * as ts from 'typescript';
import type { TypeReading } from './json-schema-of-type.ts';

/**
 * The graphs that are nodes of an exported graph, by namespace, from the calls of `addNode` that it is made with; those of their own as
 * far as they are declared in modules of the project.
 */
export function subgraphsIn(exported: ts.Symbol, reading: TypeReading): Map<string, ts.Type> {
  const found = new Map<string, ts.Type>();
  collect(declarationsOf(exported, reading), '', reading, found);
  return found;
}

/** Of imported symbols, those in the module that they come from. */
function declarationsOf(symbol: ts.Symbol | undefined, { ts, checker }: TypeReading): readonly ts.Node[] {
  const isImport = symbol !== undefined && (symbol.flags & ts.SymbolFlags.Alias) !== 0;
  return (isImport ? checker.getAliasedSymbol(symbol) : symbol)?.declarations ?? [];
}

function collect(nodes: readonly ts.Node[], within: string, reading: TypeReading, found: Map<string, ts.Type>): void {
  const { ts, checker } = reading;
  const seen = new Set<ts.Symbol>();
  for (const node of nodes) visit(node);

  /** Looks through what the declaration is made of: `const graph = builder.compile()` leads to `builder`. */
  function visit(node: ts.Node): void {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const isAddNode = node.expression.name.text === 'addNode';
      if (isAddNode) for (const [name, value] of nodesOf(node)) add(name, value);
      const made = checker.getSymbolAtLocation(rootOf(node.expression.expression));
      if (made !== undefined) follow(made);
      if (isAddNode) {
        // Nodes of graphs that are made in its arguments are not nodes of this graph.
        visit(node.expression);
        return;
      }
    }
    ts.forEachChild(node, visit);
  }

  function follow(made: ts.Symbol): void {
    if (seen.has(made) || seen.size > 100) return;
    seen.add(made);
    for (const declaration of declarationsOf(made, reading)) {
      if (!ts.isVariableDeclaration(declaration) || declaration.getSourceFile().isDeclarationFile) continue;
      visit(declaration);
      // `builder.addNode(…)` as statements of their own.
      const { name } = declaration;
      const statements = declaration.parent.parent.parent;
      if (ts.isIdentifier(name) && (ts.isSourceFile(statements) || ts.isBlock(statements))) {
        for (const statement of statements.statements) {
          if (
            ts.isExpressionStatement(statement) &&
            checker.getSymbolAtLocation(rootOf(statement.expression)) === checker.getSymbolAtLocation(name)
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
      .filter((each) => ts.isPropertyAssignment(each) || ts.isShorthandPropertyAssignment(each))
      .map((each) => [
        each.name.getText().replaceAll(/^['"]|['"]$/g, ''),
        ts.isPropertyAssignment(each) ? each.initializer : each.name,
      ]);
  }

  function add(name: string, value: ts.Expression): void {
    const type = checker.getTypeAtLocation(value);
    if (type.getProperty('lg_is_pregel') === undefined) return;
    const namespace = within === '' ? name : `${within}|${name}`;
    if (found.has(namespace) || namespace.split('|').length > 10) return;
    found.set(namespace, type);
    collect(sourcesOf(value), namespace, reading, found);
  }

  /** Where a graph is made: the declaration of a name, the body of a called function, else the expression, such as `builder.compile()`. */
  function sourcesOf(value: ts.Expression): readonly ts.Node[] {
    if (ts.isAwaitExpression(value)) return sourcesOf(value.expression);
    const name = ts.isCallExpression(value) ? value.expression : value;
    if (ts.isCallExpression(value) && !ts.isIdentifier(name)) return [value];
    const isShorthand = ts.isShorthandPropertyAssignment(value.parent);
    const symbol = isShorthand
      ? checker.getShorthandAssignmentValueSymbol(value.parent)
      : checker.getSymbolAtLocation(name);
    return declarationsOf(symbol, reading);
  }
}
