/* template.h - chat templates (Jinja): a text is parsed once, and run on messages as often as needed. Private.
 *
 * template_lexer.c cuts the text into tokens, template_parser.c (expressions) and template_statements.c make a tree of nodes of them,
 * template_run.c runs statements, template_evaluate.c expressions. Filters, tests, methods and functions are rows of tables.
 *
 * A value is one of Python's. Lists and dicts never change, as in the sandbox that transformers runs templates in; only namespaces do.
 * A string knows which of its bytes come from the data (messages, tools, variables) and which from the template: a byte of the data keeps
 * its mark through every operation. So the bytes of the output that must not become special tokens are known exactly.
 *
 * Nothing here reads files, the clock or the environment. Steps, nesting and memory are bounded. */
#ifndef REIN_MODEL_TEMPLATE_H
#define REIN_MODEL_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "model/chat.h"
#include "model/unicode.h"
#include "rein/tokenizer.h"

enum {
    REIN_TEMPLATE_SIZE = 1 << 20,     /* bytes of a template */
    REIN_TEMPLATE_DEPTH = 120,        /* nested expressions, statements and calls */
    REIN_TEMPLATE_STEPS = 20 << 20,   /* nodes that a rendering may evaluate, and items it may visit */
    REIN_TEMPLATE_MEMORY = 256 << 20, /* bytes that a rendering may take besides 64 times its data */
    REIN_TEMPLATE_RANGE = 100000,     /* items of a range, as in the sandbox of Jinja */
    REIN_TEMPLATE_ARGUMENTS = 8       /* of a filter, test, method or function */
};

/* ---- memory: freed all at once */
typedef struct rein_block rein_block;
typedef struct rein_blocks {
    rein_block *first;
    size_t used, taken, limit; /* bytes of the first block; of all; 0: no limit */
} rein_blocks;
/* Zeroed; NULL when there is no memory or the limit is reached. */
void *rein_blocks_take(rein_blocks *blocks, size_t bytes);
void rein_blocks_free(rein_blocks *blocks);

/* ---- values */
typedef enum rein_value_kind {
    REIN_VALUE_UNDEFINED, /* `name` is what was looked for */
    REIN_VALUE_NONE,
    REIN_VALUE_BOOLEAN,
    REIN_VALUE_INTEGER,
    REIN_VALUE_FLOAT,
    REIN_VALUE_STRING,
    REIN_VALUE_LIST,
    REIN_VALUE_TUPLE,
    REIN_VALUE_RANGE,    /* a list that prints as range(…) */
    REIN_VALUE_VIEW,     /* of a dict: keys, values, items */
    REIN_VALUE_ITERATOR, /* a generator: it is consumed once, and has no length */
    REIN_VALUE_DICT,
    REIN_VALUE_NAMESPACE,
    REIN_VALUE_LOOP,
    REIN_VALUE_MACRO,
    REIN_VALUE_FUNCTION,
    REIN_VALUE_METHOD
} rein_value_kind;

typedef struct rein_string {
    const char *data;  /* UTF-8; ends with a NUL that length does not count */
    const char *marks; /* [length] 1: the byte comes from the data; NULL: none does */
    size_t length;
    bool safe; /* Markup: what is put together with it would be escaped */
} rein_string;

typedef struct rein_list rein_list;
typedef struct rein_dict rein_dict;
typedef struct rein_node rein_node;
typedef struct rein_machine rein_machine;
typedef struct rein_macro rein_macro;
typedef struct rein_method rein_method;
typedef struct rein_template_loop rein_template_loop;
typedef struct rein_callable rein_callable;

typedef struct rein_value {
    rein_value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const rein_string *string; /* of UNDEFINED: its name, or NULL */
        rein_list *list;
        rein_dict *dict;
        const rein_macro *macro;
        const rein_method *method;
        const rein_callable *function;
        rein_template_loop *loop;
    } as;
} rein_value;

struct rein_list {
    rein_value *items;
    size_t n, capacity;
    size_t at;         /* of an iterator: the next item */
    const char *shown; /* of a range or view: how its text begins */
};

typedef struct rein_dict_entry {
    rein_value key, value;
} rein_dict_entry;

struct rein_dict {
    rein_dict_entry *entries; /* in the order they were added */
    size_t n, capacity;
};

struct rein_method {
    rein_value self;
    const rein_callable *row;
};

/* ---- the tree */
typedef enum rein_node_kind {
    /* expressions: a, b, c are operands; name, value, op as noted */
    REIN_NODE_CONSTANT,  /* value */
    REIN_NODE_NAME,      /* name */
    REIN_NODE_TUPLE,     /* a: items */
    REIN_NODE_LIST,      /* a: items */
    REIN_NODE_DICT,      /* a: pairs */
    REIN_NODE_PAIR,      /* a: key, b: value */
    REIN_NODE_ATTRIBUTE, /* a, name */
    REIN_NODE_ITEM,      /* a[b] */
    REIN_NODE_SLICE,     /* a:b:c */
    REIN_NODE_CALL,      /* a(b: arguments) */
    REIN_NODE_KEYWORD,   /* name = a */
    REIN_NODE_FILTER,    /* a|row(b: arguments); a may be NULL in a filter block */
    REIN_NODE_TEST,      /* a is row(b: arguments) */
    REIN_NODE_NOT,
    REIN_NODE_AND,
    REIN_NODE_OR,
    REIN_NODE_CONDITION,  /* a if b else c */
    REIN_NODE_COMPARE,    /* a, then b: comparisons */
    REIN_NODE_COMPARISON, /* op a */
    REIN_NODE_CONCAT,     /* a: parts */
    REIN_NODE_BINARY,     /* a op b */
    REIN_NODE_UNARY,      /* op a */
    /* statements */
    REIN_NODE_TEXT,             /* value */
    REIN_NODE_PRINT,            /* a: expressions */
    REIN_NODE_FOR,              /* a: target, b: iterable, c: filter, body, otherwise; op: recursive */
    REIN_NODE_IF,               /* a: condition, body, otherwise */
    REIN_NODE_SET,              /* a: target, b: value */
    REIN_NODE_SET_BLOCK,        /* a: target, b: filters, body */
    REIN_NODE_NAMESPACE_TARGET, /* name . value */
    REIN_NODE_MACRO,            /* name, a: parameters (KEYWORD, a: default), body; op: it uses caller */
    REIN_NODE_CALL_BLOCK,       /* a: call, b: a MACRO without a name */
    REIN_NODE_FILTER_BLOCK,     /* b: filters, body */
    REIN_NODE_WITH,             /* a: pairs of target and value, body */
    REIN_NODE_GENERATION,       /* body */
    REIN_NODE_BREAK,
    REIN_NODE_CONTINUE
} rein_node_kind;

typedef enum rein_op {
    REIN_OP_NONE,
    REIN_OP_ADD,
    REIN_OP_SUBTRACT,
    REIN_OP_MULTIPLY,
    REIN_OP_DIVIDE,
    REIN_OP_FLOOR_DIVIDE,
    REIN_OP_MODULO,
    REIN_OP_POWER,
    REIN_OP_EQUAL,
    REIN_OP_UNEQUAL,
    REIN_OP_LESS,
    REIN_OP_AT_MOST,
    REIN_OP_GREATER,
    REIN_OP_AT_LEAST,
    REIN_OP_IN,
    REIN_OP_NOT_IN
} rein_op;

struct rein_node {
    rein_node_kind kind;
    rein_op op;
    size_t at; /* its byte in the text */
    const rein_string *name;
    rein_value value;
    const rein_callable *row;
    rein_node *a, *b, *c, *body, *otherwise;
    rein_node *next; /* in a list */
};

/* ---- a template: never changes after parsing */
typedef struct rein_template {
    rein_blocks memory;
    const char *text; /* with \n for every end of a line */
    size_t length;
    rein_node *body;
    bool has_generation; /* it says which text the model writes */
} rein_template;

/* Parses. `place` begins the messages, which have line and column. The caller frees it whatever the status. */
rein_status rein_template_parse(rein_template *parsed, const char *text, size_t length, rein_error *err);
void rein_template_free(rein_template *parsed);

/* "line L, column C: MESSAGE" at byte `at` of a text. */
rein_status rein_template_fail(rein_error *err, rein_status code, const char *text, size_t at, const char *format, ...)
    REIN_PRINTF(5, 6);

/* ---- tokens: template_lexer.c */
typedef enum rein_token_kind {
    REIN_TOKEN_END,
    REIN_TOKEN_DATA,
    REIN_TOKEN_BLOCK_BEGIN,
    REIN_TOKEN_BLOCK_END,
    REIN_TOKEN_PRINT_BEGIN,
    REIN_TOKEN_PRINT_END,
    REIN_TOKEN_NAME,
    REIN_TOKEN_STRING,
    REIN_TOKEN_INTEGER,
    REIN_TOKEN_FLOAT,
    REIN_TOKEN_OPERATOR
} rein_token_kind;

typedef struct rein_template_token {
    rein_token_kind kind;
    size_t at;
    const char *text; /* of a name or operator, as it stands there; of data and strings, what it means */
    size_t length;
    int64_t integer;
    double number;
} rein_template_token;

typedef struct rein_template_token_list {
    rein_template_token *data; /* [n], the last is END; malloc */
    size_t n, capacity;
} rein_template_token_list;

/* Reads the tokens of parsed->text; their texts live in parsed->memory. */
rein_status rein_template_tokens(rein_template_token_list *tokens, rein_template *parsed, rein_error *err);

/* ---- the parser */
typedef struct rein_parser {
    rein_template *parsed;
    const rein_template_token *tokens; /* [n] */
    size_t n, at;
    int depth, loops; /* nesting; how many for loops are around, in this macro */
    rein_status status;
    rein_error *err;
    rein_node failed; /* what is returned after a failure, so that callers need no checks */
} rein_parser;

const rein_template_token *rein_parser_current(const rein_parser *p);
bool rein_parser_is(const rein_parser *p, const char *word); /* the current token is this name or operator */
bool rein_parser_skip(rein_parser *p, const char *word);     /* the same, and moves behind it */
void rein_parser_expect(rein_parser *p, const char *word);
void rein_parser_fail(rein_parser *p, const char *format, ...) REIN_PRINTF(2, 3);
bool rein_parser_enter(rein_parser *p); /* one level deeper; false after a failure */
rein_node *rein_parser_node(rein_parser *p, rein_node_kind kind);
const rein_string *rein_parser_string(rein_parser *p, const char *text, size_t length);
const rein_string *rein_parser_name(rein_parser *p); /* expects a name */
rein_node *rein_parse_expression(rein_parser *p);
rein_node *rein_parse_tuple(rein_parser *p, bool simple, bool parenthesized,
                            bool spaces);                     /* simple: of names; spaces: ns.name too */
rein_node *rein_parse_filters(rein_parser *p, rein_node *of); /* the current token is the name of the first */
rein_node *rein_parse_target(rein_parser *p, bool spaces);
rein_node *rein_parse_without_condition(rein_parser *p);
rein_node *rein_parse_body(rein_parser *p, const char *const *ends); /* up to one of `ends`, which is the current token then */

/* ---- running */
typedef struct rein_builder {
    char *data, *marks; /* malloc; marks NULL: none */
    size_t length, capacity;
} rein_builder;

typedef struct rein_scope {
    struct rein_scope *outer;
    rein_dict names;
} rein_scope;

struct rein_macro {
    const rein_node *node;
    rein_scope *scope;        /* where it was defined */
    const rein_macro *caller; /* of a call block: what its own `caller` is */
};

struct rein_template_loop {
    const rein_list *items;
    size_t at;
    int64_t depth;
    rein_value changed; /* what loop.changed saw last; kind UNDEFINED at first */
};

struct rein_machine {
    rein_blocks memory;
    const rein_template *running;
    rein_scope *scope;
    rein_builder *out;
    rein_builder *main_out; /* the text of the whole */
    rein_span *generated;   /* [n_generated] malloc */
    size_t n_generated, generated_capacity;
    size_t steps;
    int depth;
    enum { REIN_FLOW_ON, REIN_FLOW_BREAK, REIN_FLOW_CONTINUE } flow;
    const char *date; /* "2026-11-18" or "2026-11-18 09:30:00", or NULL */
    rein_status status;
    rein_error *err;
    size_t at; /* the node that runs */
};

/* What a filter, test, method or function gets. */
typedef struct rein_call {
    rein_machine *machine;
    rein_value self; /* what is filtered or tested, or whose method it is */
    rein_value arguments[REIN_TEMPLATE_ARGUMENTS];
    bool given[REIN_TEMPLATE_ARGUMENTS];
    size_t n;           /* positional ones, of a row that takes any number */
    rein_dict keywords; /* of a row that takes any */
    const rein_callable *row;
} rein_call;

typedef rein_value rein_native(rein_call *call);
struct rein_callable {
    const char *name;
    rein_native *run;       /* NULL: Python has it, and it is not supported here */
    const char *parameters; /* names with blanks between them; "*": any; NULL: none */
    size_t least;           /* arguments that it needs */
};
const rein_callable *rein_filter_find(const char *name, size_t length);
const rein_callable *rein_test_find(const char *name, size_t length);
const rein_callable *rein_function_find(const char *name, size_t length);
const rein_callable *rein_string_method(const char *name, size_t length);
const rein_callable *rein_dict_method(const char *name, size_t length);
const rein_callable *rein_list_method(const char *name, size_t length, rein_value_kind kind);
const rein_callable *rein_loop_method(const char *name, size_t length);
const rein_callable *rein_row_find(const rein_callable *rows, size_t n, const char *name, size_t length);

/* ---- template_value.c */
rein_value rein_fail_value(rein_machine *m, const char *format, ...) REIN_PRINTF(2, 3); /* the rendering fails here */
bool rein_machine_step(rein_machine *m, size_t steps); /* false, and a failure, when there were too many */
void *rein_machine_take(rein_machine *m, size_t bytes);
rein_value rein_none(void);
rein_value rein_boolean(bool is);
rein_value rein_integer(int64_t integer);
rein_value rein_float(double number);
rein_value rein_undefined(const rein_string *name);
rein_value rein_string_of(rein_machine *m, const char *text, size_t length, const char *marks); /* copies */
rein_value rein_literal(rein_machine *m, const char *text);
rein_value rein_substring(rein_machine *m, const rein_string *s, size_t begin, size_t end);
rein_value rein_list_new(rein_machine *m, rein_value_kind kind, size_t capacity);
void rein_list_add(rein_machine *m, rein_list *list, rein_value item);
rein_value rein_dict_new(rein_machine *m, size_t capacity);
void rein_dict_add(rein_machine *m, rein_dict *dict, rein_value key, rein_value value); /* the key is not there yet */
void rein_dict_set(rein_machine *m, rein_dict *dict, rein_value key, rein_value value);
const rein_dict_entry *rein_dict_find(rein_machine *m, const rein_dict *dict, rein_value key);
const rein_dict_entry *rein_dict_name(const rein_dict *dict, const char *name, size_t length);
rein_value rein_value_of_json(rein_machine *m, const json_t *json, bool marked);
bool rein_is_sequence(rein_value v); /* list, tuple, range or view */
bool rein_is_text(rein_value v, const char *text);
const char *rein_kind_name(rein_value v); /* as Python calls the type */

/* ---- template_compare.c */
bool rein_value_true(rein_value v);
bool rein_value_equal(rein_machine *m, rein_value a, rein_value b);
int rein_value_order(rein_machine *m, rein_value a, rein_value b); /* -1, 0, 1; kinds that have no order fail */
bool rein_value_contains(rein_machine *m, rein_value whole, rein_value part);
bool rein_value_length(size_t *n, rein_value v);            /* false: it has none */
rein_list *rein_value_items(rein_machine *m, rein_value v); /* what a for loop visits; consumes an iterator. NULL after a failure */
rein_value rein_value_attribute(rein_machine *m, rein_value of, const rein_string *name);
rein_value rein_value_item(rein_machine *m, rein_value of, rein_value key);
rein_value rein_value_slice(rein_machine *m, rein_value of, rein_value begin, rein_value end, rein_value step);

/* ---- template_print.c: builders, str(), repr() and JSON */
void rein_put(rein_machine *m, rein_builder *b, const char *text, const char *marks, size_t length);
void rein_put_text(rein_machine *m, rein_builder *b, const char *text);
void rein_put_string(rein_machine *m, rein_builder *b, const rein_string *s);
void rein_put_value(rein_machine *m, rein_builder *b, rein_value v); /* str(v); nothing for an undefined one */
void rein_put_repr(rein_machine *m, rein_builder *b, rein_value v);
rein_value rein_builder_value(rein_machine *m, rein_builder *b); /* its text as a string; frees the builder */
rein_value rein_value_text(rein_machine *m, rein_value v);       /* str(v) */
typedef struct rein_json_style {
    bool ascii, sorted;
    const char *indent;            /* NULL: on one line */
    const rein_string *item, *key; /* separators; NULL: the usual ones */
} rein_json_style;
void rein_put_json(rein_machine *m, rein_builder *b, rein_value v, const rein_json_style *style);

/* ---- template_text.c: strings */
bool rein_is_space(uint32_t character); /* what Python's isspace() says */
size_t rein_characters(const rein_string *s);
size_t rein_character_offset(const rein_string *s, size_t character); /* its byte; the length past the end */
rein_value rein_strip(rein_machine *m, const rein_string *s, const rein_string *what, bool left,
                      bool right); /* what NULL: spaces */
rein_value rein_replace(rein_machine *m, const rein_string *s, const rein_string *from, const rein_string *to, int64_t most);
typedef enum rein_case { REIN_CASE_UPPER, REIN_CASE_LOWER, REIN_CASE_TITLE } rein_case;
void rein_put_case(rein_machine *m, rein_builder *b, const rein_string *s, size_t begin, size_t end, rein_case to);
rein_value rein_capitalize(rein_machine *m, const rein_string *s);
int64_t rein_find(const rein_string *s, const rein_string *part, size_t from, size_t to, bool last); /* bytes; -1 */

/* ---- template_evaluate.c, template_run.c, template_call.c */
rein_value rein_template_evaluate(rein_machine *m, const rein_node *node);
void rein_run(rein_machine *m, const rein_node *list);
rein_value rein_call_value(rein_machine *m, rein_value callee, const rein_node *arguments, const rein_macro *caller);
rein_value rein_call_row(rein_machine *m, const rein_callable *row, rein_value self, const rein_node *arguments);
rein_value rein_call_native(rein_machine *m, const rein_callable *row, rein_value self, const rein_value *arguments, size_t n);
rein_value rein_macro_run(rein_machine *m, const rein_macro *macro, const rein_call *call, const rein_macro *caller);
void rein_assign(rein_machine *m, const rein_node *target, rein_value value);
rein_value rein_lookup(rein_machine *m, const rein_string *name);
rein_value rein_binary(rein_machine *m, rein_op op, rein_value a, rein_value b);
bool rein_compare(rein_machine *m, rein_op op, rein_value a, rein_value b);

/* ---- template_date.c: strftime in the C locale. `date` is "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS". */
rein_value rein_strftime(rein_machine *m, const rein_string *format);

/* ---- template_render.c: the whole */
typedef struct rein_template_data {
    const json_t *messages; /* marked as data, but for known roles */
    const json_t *tools, *documents, *variables;
    const json_t *tokens; /* bos_token …: the template's own */
    bool add_generation_prompt;
    const char *date;
} rein_template_data;
/* Fills `rendered`, which is {0}. On failure it is empty. */
rein_status rein_template_render(rein_rendered *rendered, const rein_template *parsed, const rein_template_data *data,
                                 rein_error *err);

#endif
