"""Evaluates the text of Python files without running them.

MLIR-AIR's builders compute their argument lists from a model's dimensions with plain arithmetic, lists
and f-strings, in between calls to a compiler that is not needed to know them. What is plain is
evaluated here; everything else (imports that are not part of the checkout, compiler calls, numpy) is
an Opaque value, and whatever is made from one is Opaque, too. No code of the checkout is executed.
"""

import ast
import json
import pathlib
import posixpath

BUILTINS = {f.__name__: f for f in (
    abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, len, list, max, min, range,
    reversed, round, set, sorted, str, sum, tuple, zip)}
PLAIN = (str, bytes, int, float, bool, list, tuple, dict, set, frozenset, range, type(None),
         pathlib.PurePath)
MOST_STEPS = 3_000_000  # statements and calls: a loop that does not end is given up


class NotRead(Exception):
    """The text cannot be evaluated further; `where` is file and line."""

    def __init__(self, where, why):
        super().__init__(f"{where}: {why}")


class Opaque:
    """A value that is not known. Keeps what was called with what, where that is known."""

    def __init__(self, origin, args=(), kwargs=None):
        self.origin, self.args, self.kwargs = origin, args, kwargs or {}

    def __repr__(self):
        return f"<{self.origin}>"


class Record:
    """An instance of a class of the checkout: its fields."""

    def __init__(self, kind, fields):
        self.kind = kind
        self.__dict__.update(fields)


class Class:
    def __init__(self, name, defaults, order):
        self.name, self.defaults, self.order = name, defaults, order

    def make(self, args, kwargs):
        return Record(self.name, {**self.defaults, **dict(zip(self.order, args)), **kwargs})


class Function:
    def __init__(self, node, scope, module):
        self.node, self.scope, self.module = node, scope, module


class Return(Exception):
    def __init__(self, value):
        super().__init__()
        self.value = value


class Leave(Exception):
    """break or continue."""

    def __init__(self, is_break):
        super().__init__()
        self.is_break = is_break


class Module:
    def __init__(self, path):
        self.path, self.names = path, {}


class Evaluator:
    """`roots`: folders in which modules are looked for. `environment`: what os.environ holds.
    `replaced`: {(module name, name): Python function} that stand for functions of the checkout.
    `opaque`: modules that are not looked into. `inside`: folders; a module that lies in none of them
    is opaque, too."""

    def __init__(self, checkout, roots, environment=None, replaced=None, opaque=(), inside=()):
        self.checkout, self.roots = pathlib.Path(checkout).resolve(), roots
        self.environment, self.replaced = environment or {}, replaced or {}
        self.opaque, self.inside = opaque, inside
        self.unknown = {}  # (module's path, name): where text stands that gives it no known value
        self.modules, self.steps, self.undecided = {}, 0, []

    # -- modules

    def module(self, name):
        """The module, or an Opaque where the checkout has no such file."""
        if name not in self.modules:
            path = next((found for root in self.roots
                         for found in (root / (name.replace(".", "/") + ".py"),) if found.is_file()), None)
            if path is None or name in self.opaque or \
                    not any(path.is_relative_to(folder) for folder in self.inside):
                return Opaque(name)
            self.modules[name] = made = Module(path.relative_to(self.checkout))
            made.names.update({"__file__": str(path), "__name__": name})
            try:
                self.top_level(made, ast.parse(path.read_text(), str(path)))
            except SyntaxError as error:  # written for a newer Python than this one
                self.undecided.append(f"{made.path}:{error.lineno}")
            for (of, function), stand_in in self.replaced.items():
                if of == name:
                    made.names[function] = stand_in
        return self.modules[name]

    def top_level(self, module, tree):
        """A statement that cannot be evaluated leaves the names it binds unknown."""
        for statement in tree.body:
            bound = [node for node in ast.walk(statement)
                     if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
            try:
                self.run([statement], [module.names], module)
            except (NotRead, Return, Leave):
                for node in bound:
                    module.names.setdefault(node.id, Opaque(node.id))
            for node in bound:
                if isinstance(module.names.get(node.id, Opaque("")), Opaque):
                    self.unknown[module.path, node.id] = self.where(node, module)

    def call(self, module_name, function, *args, **kwargs):
        module = self.module(module_name)
        if isinstance(module, Opaque) or not isinstance(module.names.get(function), Function):
            raise NotRead(module_name, f"has no function {function}")
        return self.apply(module.names[function], args, kwargs, module_name)

    def value(self, module_name, name):
        module = self.module(module_name)
        if isinstance(module, Opaque) or name not in module.names:
            raise NotRead(module_name, f"has no {name}")
        return module.names[name]

    # -- statements

    def where(self, node, module):
        return f"{module.path}:{getattr(node, 'lineno', 0)}"

    def run(self, statements, scope, module):
        for node in statements:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise NotRead(self.where(node, module), "takes too long to evaluate")
            method = getattr(self, "run_" + type(node).__name__, None)
            if method is None:
                raise NotRead(self.where(node, module), f"{type(node).__name__} is not evaluated")
            method(node, scope, module)

    def run_Pass(self, node, scope, module):
        pass

    run_Assert = run_Global = run_Nonlocal = run_Delete = run_Pass

    def run_Expr(self, node, scope, module):
        self.eval(node.value, scope, module)

    def run_Return(self, node, scope, module):
        raise Return(self.eval(node.value, scope, module) if node.value else None)

    def run_Raise(self, node, scope, module):
        raise NotRead(self.where(node, module), "the builder refuses these dimensions")

    def run_Break(self, node, scope, module):
        raise Leave(True)

    def run_Continue(self, node, scope, module):
        raise Leave(False)

    def run_Assign(self, node, scope, module):
        value = self.eval(node.value, scope, module)
        for target in node.targets:
            self.assign(target, value, scope, module)

    def run_AnnAssign(self, node, scope, module):
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, scope, module), scope, module)

    def run_AugAssign(self, node, scope, module):
        old = self.eval(ast.copy_location(self.loaded(node.target), node), scope, module)
        value = self.binary(node.op, old, self.eval(node.value, scope, module), node, module)
        self.assign(node.target, value, scope, module)

    @staticmethod
    def loaded(target):
        return ast.parse(ast.unparse(target), mode="eval").body

    def assign(self, target, value, scope, module):
        if isinstance(target, ast.Name):
            scope[-1][target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            count = len(target.elts)
            values = [Opaque("item")] * count if isinstance(value, Opaque) else list(value)
            if len(values) != count:
                raise NotRead(self.where(target, module), "assigns another number of values")
            for part, item in zip(target.elts, values):
                self.assign(part, item, scope, module)
        elif isinstance(target, ast.Subscript):
            holder = self.eval(target.value, scope, module)
            key = self.eval(target.slice, scope, module)
            if isinstance(holder, (dict, list)) and not isinstance(key, Opaque):
                holder[key] = value
        elif isinstance(target, ast.Attribute):
            holder = self.eval(target.value, scope, module)
            if isinstance(holder, Record):
                setattr(holder, target.attr, value)

    def run_If(self, node, scope, module):
        condition = self.eval(node.test, scope, module)
        if isinstance(condition, Opaque):
            self.undecided.append(self.where(node, module))
            return
        self.run(node.body if condition else node.orelse, scope, module)

    def run_For(self, node, scope, module):
        items = self.eval(node.iter, scope, module)
        if isinstance(items, Opaque):
            self.undecided.append(self.where(node, module))
            return
        for item in list(items):
            self.assign(node.target, item, scope, module)
            try:
                self.run(node.body, scope, module)
            except Leave as leave:
                if leave.is_break:
                    return
        self.run(node.orelse, scope, module)

    def run_While(self, node, scope, module):
        while True:
            condition = self.eval(node.test, scope, module)
            if isinstance(condition, Opaque):
                self.undecided.append(self.where(node, module))
                return
            if not condition:
                return
            try:
                self.run(node.body, scope, module)
            except Leave as leave:
                if leave.is_break:
                    return

    def run_With(self, node, scope, module):
        for item in node.items:
            if item.optional_vars is not None:
                self.assign(item.optional_vars, Opaque("with"), scope, module)
        self.run(node.body, scope, module)

    def run_Try(self, node, scope, module):
        self.run(node.body, scope, module)
        self.run(node.finalbody, scope, module)

    def run_FunctionDef(self, node, scope, module):
        plain = all(isinstance(d, ast.Name) and d.id in ("staticmethod", "property")
                    for d in node.decorator_list)
        scope[-1][node.name] = Function(node, list(scope), module) if plain else Opaque(node.name)

    def run_ClassDef(self, node, scope, module):
        defaults, order = {}, []
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                order.append(field.target.id)
                if field.value is not None:
                    made = self.eval(field.value, scope, module)
                    factory = isinstance(made, Opaque) and made.kwargs.get("default_factory")
                    defaults[field.target.id] = factory() if callable(factory) else made
        scope[-1][node.name] = Class(node.name, defaults, order)

    def run_Import(self, node, scope, module):
        for alias in node.names:
            scope[-1][alias.asname or alias.name.split(".")[0]] = self.imported(alias.name)

    def imported(self, name):
        known = {"json": Record("module", {"loads": json.loads}),
                 "sys": Record("module", {"path": []}),
                 "os": Record("module", {"environ": self.environment, "path": Record("module", {"join": posixpath.join})})}
        return known.get(name) or self.module(name)

    def run_ImportFrom(self, node, scope, module):
        source = None if node.module is None else self.module(node.module)
        for alias in node.names:
            name = alias.asname or alias.name
            if node.module == "pathlib" and alias.name == "Path":
                scope[-1][name] = pathlib.Path
            elif isinstance(source, Module):
                scope[-1][name] = source.names.get(alias.name, Opaque(alias.name))
            else:
                scope[-1][name] = Opaque(f"{node.module}.{alias.name}")

    # -- expressions

    def eval(self, node, scope, module):
        method = getattr(self, "eval_" + type(node).__name__, None)
        return Opaque(type(node).__name__) if method is None else method(node, scope, module)

    def eval_Constant(self, node, scope, module):
        return node.value

    def eval_Name(self, node, scope, module):
        for names in reversed(scope):
            if node.id in names:
                return names[node.id]
        return BUILTINS.get(node.id, Opaque(node.id))

    def eval_Attribute(self, node, scope, module):
        holder = self.eval(node.value, scope, module)
        if isinstance(holder, Module):
            return holder.names.get(node.attr, Opaque(node.attr))
        if isinstance(holder, Record):
            return getattr(holder, node.attr, Opaque(node.attr))
        if (isinstance(holder, PLAIN) or holder is dict) and not node.attr.startswith("_"):
            return getattr(holder, node.attr, Opaque(node.attr))
        origin = f"{holder.origin}.{node.attr}" if isinstance(holder, Opaque) else node.attr
        return Opaque(origin)

    def eval_Subscript(self, node, scope, module):
        holder = self.eval(node.value, scope, module)
        key = self.eval(node.slice, scope, module)
        if not isinstance(holder, PLAIN) or isinstance(key, Opaque):
            return Opaque("item")
        try:
            return holder[key]
        except (KeyError, IndexError, TypeError) as error:
            raise NotRead(self.where(node, module), f"has no item {error}") from None

    def eval_Slice(self, node, scope, module):
        parts = [None if p is None else self.eval(p, scope, module)
                 for p in (node.lower, node.upper, node.step)]
        return Opaque("slice") if any(isinstance(p, Opaque) for p in parts) else slice(*parts)

    def elements(self, nodes, scope, module):
        made = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items = self.eval(node.value, scope, module)
                made += [Opaque("starred")] if isinstance(items, Opaque) else list(items)
            else:
                made.append(self.eval(node, scope, module))
        return made

    def eval_List(self, node, scope, module):
        return self.elements(node.elts, scope, module)

    def eval_Tuple(self, node, scope, module):
        return tuple(self.elements(node.elts, scope, module))

    def eval_Set(self, node, scope, module):
        return set(self.elements(node.elts, scope, module))

    def eval_Dict(self, node, scope, module):
        made = {}
        for key, value in zip(node.keys, node.values):
            item = self.eval(value, scope, module)
            if key is not None:
                made[self.eval(key, scope, module)] = item
            elif isinstance(item, dict):
                made.update(item)
        return made

    def eval_JoinedStr(self, node, scope, module):
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += part.value
                continue
            value = self.eval(part.value, scope, module)
            spec = "" if part.format_spec is None else self.eval(part.format_spec, scope, module)
            if isinstance(value, Opaque) or isinstance(spec, Opaque):
                return Opaque("text")
            value = repr(value) if part.conversion == ord("r") else value
            text += format(value, spec)
        return text

    OPERATIONS = {
        ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
        ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
        ast.Pow: lambda a, b: a ** b, ast.BitOr: lambda a, b: a | b, ast.BitAnd: lambda a, b: a & b,
        ast.LShift: lambda a, b: a << b, ast.RShift: lambda a, b: a >> b, ast.BitXor: lambda a, b: a ^ b}
    COMPARISONS = {
        ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
        ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
        ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
        ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b}

    def binary(self, operation, a, b, node, module):
        if not isinstance(a, PLAIN) or not isinstance(b, PLAIN):
            return Opaque("value")
        try:
            return self.OPERATIONS[type(operation)](a, b)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise NotRead(self.where(node, module), str(error)) from None

    def eval_BinOp(self, node, scope, module):
        return self.binary(node.op, self.eval(node.left, scope, module),
                           self.eval(node.right, scope, module), node, module)

    def eval_UnaryOp(self, node, scope, module):
        value = self.eval(node.operand, scope, module)
        if isinstance(value, Opaque):
            return Opaque("value")
        return not value if isinstance(node.op, ast.Not) else \
            -value if isinstance(node.op, ast.USub) else value

    def eval_BoolOp(self, node, scope, module):
        is_and = isinstance(node.op, ast.And)
        value = None
        for part in node.values:
            value = self.eval(part, scope, module)
            if isinstance(value, Opaque) or bool(value) != is_and:
                return value
        return value

    def eval_Compare(self, node, scope, module):
        left = self.eval(node.left, scope, module)
        for operation, part in zip(node.ops, node.comparators):
            right = self.eval(part, scope, module)
            if isinstance(left, Opaque) or isinstance(right, Opaque):
                identity = isinstance(operation, (ast.Is, ast.IsNot)) and None in (left, right)
                return isinstance(operation, ast.IsNot) if identity else Opaque("condition")
            try:
                if not self.COMPARISONS[type(operation)](left, right):
                    return False
            except TypeError as error:
                raise NotRead(self.where(node, module), str(error)) from None
            left = right
        return True

    def eval_IfExp(self, node, scope, module):
        condition = self.eval(node.test, scope, module)
        if isinstance(condition, Opaque):
            return Opaque("value")
        return self.eval(node.body if condition else node.orelse, scope, module)

    def eval_Lambda(self, node, scope, module):
        body = ast.copy_location(ast.Return(node.body), node)
        return Function(ast.copy_location(ast.FunctionDef("lambda", node.args, [body], []), node),
                        list(scope), module)

    def comprehended(self, node, scope, module, make):
        made = []

        def descend(level, inner):
            if level == len(node.generators):
                made.append(make(inner))
                return
            generator = node.generators[level]
            items = self.eval(generator.iter, inner, module)
            if isinstance(items, Opaque):
                raise NotRead(self.where(node, module), "goes through values that are not known")
            for item in list(items):
                deeper = [*inner, {}]
                self.assign(generator.target, item, deeper, module)
                if all(self.eval(test, deeper, module) for test in generator.ifs):
                    descend(level + 1, deeper)

        descend(0, scope)
        return made

    def eval_ListComp(self, node, scope, module):
        return self.comprehended(node, scope, module, lambda s: self.eval(node.elt, s, module))

    eval_GeneratorExp = eval_ListComp

    def eval_SetComp(self, node, scope, module):
        return set(self.eval_ListComp(node, scope, module))

    def eval_DictComp(self, node, scope, module):
        return dict(self.comprehended(node, scope, module, lambda s: (
            self.eval(node.key, s, module), self.eval(node.value, s, module))))

    # -- calls

    def eval_Call(self, node, scope, module):
        function = self.eval(node.func, scope, module)
        args = self.elements(node.args, scope, module)
        kwargs = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope, module)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update(value)
        return self.apply(function, args, kwargs, self.where(node, module))

    def apply(self, function, args, kwargs, where):
        self.steps += 1
        if isinstance(function, Class):
            return function.make(args, kwargs)
        if isinstance(function, Function):
            return self.enter(function, args, kwargs, where)
        if isinstance(function, Opaque) and function.origin == "next" and isinstance(args[0], list):
            return args[0][0] if args[0] else (args[1] if len(args) > 1 else Opaque("next"))
        if isinstance(function, Opaque) or not callable(function):
            return Opaque(getattr(function, "origin", "call"), args, kwargs)
        stands_in = function in self.replaced.values() or hasattr(function, "takes_opaque")
        holder = getattr(function, "__self__", None)
        keeps = isinstance(holder, (list, dict, set))  # append, get, update: they keep what they get
        unknown = any(isinstance(a, Opaque) for a in [*args, *kwargs.values()])
        if unknown and not stands_in and not keeps:
            return Opaque("call", args, kwargs)
        if isinstance(holder, pathlib.PurePath) and not pathlib.Path(holder).resolve().is_relative_to(self.checkout):
            return Opaque("path")
        try:
            return function(*args, **kwargs)
        except NotRead:
            raise
        except Exception as error:  # a built-in function's, with values that it does not take
            raise NotRead(where, str(error)) from None

    def enter(self, function, args, kwargs, where):
        of = function.node.args
        names = [a.arg for a in of.posonlyargs + of.args]
        local = {}
        defaults = dict(zip(names[len(names) - len(of.defaults):], of.defaults))
        defaults.update({a.arg: d for a, d in zip(of.kwonlyargs, of.kw_defaults) if d is not None})
        for name, default in defaults.items():
            local[name] = self.eval(default, function.scope, function.module)
        local.update(zip(names, args))
        if of.vararg is not None:
            local[of.vararg.arg] = tuple(args[len(names):])
        local.update(kwargs)
        missing = [n for n in names if n not in local]
        if missing:
            raise NotRead(where, f"{function.node.name} is called without {missing[0]}")
        try:
            self.run(function.node.body, [*function.scope, local], function.module)
        except Return as result:
            return result.value
        return None
