import type * as ts from 'typescript';
import type { TypeCheckContext } from './json-schema-of-type.ts';

/**
 * Finds the subgraphs of an exported graph, by namespace, from the `addNode` calls in the source code. Finds nested
 * subgraphs only if modules of the project declare them.
 */
export function findSubgraphs(exported: ts.Symbol, reading: TypeCheckContext): Map<string, ts.Type> {
  const found = new Map<string, ts.Type>();
  collect(getDeclarations(exported, reading), '', reading, found);
  return found;
}

/** Returns the declarations of a symbol or, for an imported symbol, the declarations in its module. */
function getDeclarations(symbol: ts.Symbol | undefined, { ts, checker }: TypeCheckContext): readonly ts.Node[] {
  const isImport = symbol !== undefined && (symbol.flags & ts.SymbolFlags.Alias) !== 0;
  return (isImport ? checker.getAliasedSymbol(symbol) : symbol)?.declarations ?? [];
}

function collect(
  nodes: readonly ts.Node[],
  prefix: string,
  reading: TypeCheckContext,
  found: Map<string, ts.Type>,
): void {
  const { ts, checker } = reading;
  const visitedSymbols = new Set<ts.Symbol>();
  for (const node of nodes) visit(node);

  /**
   * Visits the expressions of a declaration and the declarations that they name, such as `builder` in
   * `builder.compile()`.
   */
  function visit(node: ts.Node): void {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const isAddNode = node.expression.name.text === 'addNode';
      if (isAddNode) for (const [name, value] of listAddedNodes(node)) add(name, value);
      const made = checker.getSymbolAtLocation(getRootExpression(node.expression.expression));
      if (made !== undefined) visitDeclarations(made);
      if (isAddNode) {
        // Do not visit the arguments, because graphs that are created there have their own nodes.
        visit(node.expression);
        return;
      }
    }
    ts.forEachChild(node, visit);
  }

  function visitDeclarations(made: ts.Symbol): void {
    if (visitedSymbols.has(made) || visitedSymbols.size > 100) return;
    visitedSymbols.add(made);
    for (const declaration of getDeclarations(made, reading)) {
      if (!ts.isVariableDeclaration(declaration) || declaration.getSourceFile().isDeclarationFile) continue;
      visit(declaration);
      // Visit `builder.addNode(…)` calls in separate statements.
      const { name } = declaration;
      const statements = declaration.parent.parent.parent;
      if (ts.isIdentifier(name) && (ts.isSourceFile(statements) || ts.isBlock(statements))) {
        for (const statement of statements.statements) {
          if (
            ts.isExpressionStatement(statement) &&
            checker.getSymbolAtLocation(getRootExpression(statement.expression)) === checker.getSymbolAtLocation(name)
          ) {
            visit(statement);
          }
        }
      }
    }
  }

  function getRootExpression(node: ts.Node): ts.Node {
    if (ts.isCallExpression(node) || ts.isPropertyAccessExpression(node)) return getRootExpression(node.expression);
    return node;
  }

  function listAddedNodes(call: ts.CallExpression): [string, ts.Expression][] {
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
    const namespace = prefix === '' ? name : `${prefix}|${name}`;
    if (found.has(namespace) || namespace.split('|').length > 10) return;
    found.set(namespace, type);
    collect(findCreationNodes(value), namespace, reading, found);
  }

  /** Returns the nodes that create a graph: the declarations of a name or of a called function, else the expression. */
  function findCreationNodes(value: ts.Expression): readonly ts.Node[] {
    if (ts.isAwaitExpression(value)) return findCreationNodes(value.expression);
    const name = ts.isCallExpression(value) ? value.expression : value;
    if (ts.isCallExpression(value) && !ts.isIdentifier(name)) return [value];
    const isShorthand = ts.isShorthandPropertyAssignment(value.parent);
    const symbol = isShorthand
      ? checker.getShorthandAssignmentValueSymbol(value.parent)
      : checker.getSymbolAtLocation(name);
    return getDeclarations(symbol, reading);
  }
}
