/* Runs an exported SavedModel with no Python in the process: lines in, translations out.

     TENSORFLOW=$(python -c 'import os, tensorflow; print(os.path.dirname(tensorflow.__file__))')
     TEXT=$(python -c 'import os, tensorflow_text; print(os.path.dirname(tensorflow_text.__file__))')
     gcc -std=c11 -Wall -Wextra -O2 run_saved_model.c -o run_saved_model -I"$TENSORFLOW/include" -L"$TENSORFLOW" \
         -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2 -Wl,-rpath,"$TENSORFLOW"
     export TF_CPP_MIN_LOG_LEVEL=3    # leaves three lines of TensorFlow's notes on the machine in standard error
     ./run_saved_model --library "$TEXT/python/ops/_sentencepiece_tokenizer.so" served/en-de/1 < source > translation

   It loads and runs the export as the stock TensorFlow Serving image does: LoadSavedModel with the tag "serve",
   Session::Run, and XLA switched off. What works in Python may fail there, and here.

   An input line is one row. A signature with several inputs takes their values from fields that tabs separate, in the
   alphabetical order of the inputs' names; the last field is the rest of the line, and a field that is missing or
   blank is "" or 0. A matrix of numbers takes its row from numbers that blanks separate, filled up with 0. Lines end
   in \n or \r\n, the last one as it likes; texts may hold any other byte.

   An output line is the row's `translation`, or what the first string output holds if none has that name: a blank
   stands for white space that would end the line or a field, and a tab between the strings of a matrix. With --json
   it is an object of all outputs, sorted by name; null is a number that is not finite, and nothing is replaced but
   bytes that are not UTF-8. The width of a matrix may depend on the other rows of the batch.

   Exit status: 0; 1 if something fails, which is said on standard error; 2 if the command line is wrong. */

#define _GNU_SOURCE /* getline, getopt_long */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

/* Its header, tensorflow/compiler/jit/flags.h, is C++; the library exports it under this name. */
extern void disable_xla_compilation(void) __asm__("_ZN10tensorflow21DisableXlaCompilationEv");

enum { FAILED = 1, WRONG_USAGE = 2, MAX_RANK = 8 };

static const char usage[] =
    "Usage: run_saved_model [OPTION]... EXPORT < lines\n"
    "Run a signature of the SavedModel in the folder EXPORT on each line of standard input.\n"
    "Several inputs are fields separated by tabs, in the alphabetical order of the inputs' names.\n\n"
    "  --signature NAME   default: serving_default\n"
    "  --batch ROWS       lines that are run together; default: 32\n"
    "  --json             write all outputs, one JSON object a line, in place of the translation\n"
    "  --library FILE.so  load operations first: those of tensorflow_text's _sentencepiece_tokenizer.so\n"
    "  --list             write the signatures with their inputs and outputs, and read nothing\n"
    "  --help             write this text\n";

/* ==== Errors and memory ==== */

static _Noreturn void fail(int exit_status, const char *format, ...) {
  va_list arguments;
  fflush(stdout);
  fputs("run_saved_model: error: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(exit_status);
}

static void check(const TF_Status *status, const char *what, const char *which) {
  if (TF_GetCode(status) == TF_OK) return;
  const bool lacks_library = strstr(TF_Message(status), "Op type not registered") != NULL;
  fail(FAILED, "cannot %s %s: %s%s", what, which, TF_Message(status), lacks_library ? "\nSee --library" : "");
}

/* Room for `count` things of `size` bytes, zeroed if `memory` is NULL; never NULL. */
static void *room(void *memory, size_t count, size_t size) {
  count = count > 0 ? count : 1;
  if (count > SIZE_MAX / size) fail(FAILED, "out of memory");
  memory = memory == NULL ? calloc(count, size) : realloc(memory, count * size);
  if (memory == NULL) fail(FAILED, "out of memory");
  return memory;
}

/* ==== The wire format of protocol buffers ==== */

typedef struct {
  const unsigned char *at, *end;
} Bytes;

typedef struct {
  uint64_t number;
  uint64_t value; /* of a whole number */
  Bytes bytes;    /* of a string or a message */
} Field;

static _Noreturn void fail_damaged(void) { fail(FAILED, "the export's description of itself is damaged"); }

static uint64_t next_varint(Bytes *message) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
    const unsigned char byte = *message->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail_damaged();
}

/* Takes the next field from the front of `message`; false at its end. */
static bool next_field(Bytes *message, Field *field) {
  if (message->at == message->end) return false;
  const uint64_t tag = next_varint(message);
  *field = (Field){.number = tag >> 3};
  uint64_t length = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : 0; /* of the types with a fixed length */
  if ((tag & 7) == 0) field->value = next_varint(message);
  else if ((tag & 7) == 2) length = next_varint(message);
  else if (length == 0) fail_damaged();
  if (length > (uint64_t)(message->end - message->at)) fail_damaged();
  field->bytes = (Bytes){message->at, message->at + length};
  message->at += length;
  return true;
}

static char *as_string(Bytes bytes) {
  const size_t length = (size_t)(bytes.end - bytes.at);
  return memcpy(room(NULL, length + 1, 1), bytes.at, length);
}

/* ==== Signatures ==== */

typedef struct {
  char *name;      /* what the signature calls it */
  char *operation; /* whose output it is in the graph */
  int index;       /* of that output */
  TF_DataType dtype;
  int rank; /* -1: unknown */
  int64_t shape[MAX_RANK];
} Endpoint;

typedef struct {
  char *name;
  Endpoint *inputs, *outputs; /* sorted by name */
  size_t num_inputs, num_outputs;
} Signature;

/* For structures whose first member is the name. */
static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The value of a map's entry. */
static Bytes read_entry(Bytes message, char **key) {
  Bytes value = {message.end, message.end};
  Field field;
  *key = NULL;
  while (next_field(&message, &field)) {
    if (field.number == 1 && *key == NULL) *key = as_string(field.bytes);
    if (field.number == 2) value = field.bytes;
  }
  if (*key == NULL) fail_damaged();
  return value;
}

static void read_shape(Bytes message, Endpoint *endpoint) {
  Field field, dimension;
  bool known = true;
  endpoint->rank = 0;
  while (next_field(&message, &field)) {
    if (field.number == 3 && field.value != 0) known = false; /* unknown_rank */
    if (field.number != 2) continue;                          /* dim */
    if (endpoint->rank == MAX_RANK) fail(FAILED, "`%s` must have at most %d dimensions", endpoint->name, MAX_RANK);
    while (next_field(&field.bytes, &dimension)) {
      if (dimension.number == 1) endpoint->shape[endpoint->rank] = (int64_t)dimension.value; /* size */
    }
    endpoint->rank++;
  }
  if (!known) endpoint->rank = -1;
}

static Endpoint *add_endpoint(Bytes entry, Endpoint *endpoints, size_t *count) {
  Endpoint endpoint = {.rank = -1};
  Field field;
  Bytes info = read_entry(entry, &endpoint.name);
  while (next_field(&info, &field)) {
    if (field.number == 1) endpoint.operation = as_string(field.bytes); /* name, such as "operation:index" */
    if (field.number == 2) endpoint.dtype = (TF_DataType)field.value;   /* dtype */
    if (field.number == 3) read_shape(field.bytes, &endpoint);          /* tensor_shape */
  }
  char *colon = endpoint.operation != NULL ? strrchr(endpoint.operation, ':') : NULL;
  if (colon != NULL) {
    endpoint.index = atoi(colon + 1);
    *colon = '\0';
  }
  endpoints = room(endpoints, *count + 1, sizeof endpoint);
  endpoints[(*count)++] = endpoint;
  qsort(endpoints, *count, sizeof endpoint, by_name);
  return endpoints;
}

/* The signatures of a MetaGraphDef, sorted by name. */
static Signature *read_signatures(Bytes meta_graph, size_t *count) {
  Signature *signatures = NULL;
  Field field;
  *count = 0;
  while (next_field(&meta_graph, &field)) {
    if (field.number != 5) continue; /* signature_def */
    Signature new = {.name = NULL};
    Bytes definition = read_entry(field.bytes, &new.name);
    if (strncmp(new.name, "__", 2) == 0) continue; /* those that start the model are not for us */
    while (next_field(&definition, &field)) {
      if (field.number == 1) new.inputs = add_endpoint(field.bytes, new.inputs, &new.num_inputs);
      if (field.number == 2) new.outputs = add_endpoint(field.bytes, new.outputs, &new.num_outputs);
    }
    signatures = room(signatures, *count + 1, sizeof new);
    signatures[(*count)++] = new;
    qsort(signatures, *count, sizeof new, by_name);
  }
  return signatures;
}

/* NULL if no value of that type can be read or written. */
static const char *dtype_name(TF_DataType dtype) {
  return dtype == TF_STRING ? "string" : dtype == TF_BOOL ? "bool" : dtype == TF_INT32 ? "int32"
       : dtype == TF_INT64 ? "int64" : dtype == TF_FLOAT ? "float32" : NULL;
}

static void list_endpoints(const char *kind, const Endpoint *endpoints, size_t count) {
  for (const Endpoint *one = endpoints; one < endpoints + count; one++) {
    const char *dtype = dtype_name(one->dtype);
    printf("  %-6s  %-24s  %-7s  %s", kind, one->name, dtype != NULL ? dtype : "other", one->rank < 0 ? "?" : "[");
    for (int axis = 0; axis < one->rank; axis++) {
      if (axis > 0) fputs(", ", stdout);
      if (one->shape[axis] < 0) putchar('?');
      else printf("%" PRId64, one->shape[axis]);
    }
    puts(one->rank < 0 ? "" : "]");
  }
}

/* ==== Lines in ==== */

typedef struct {
  char *text; /* with a NUL behind it */
  size_t length, capacity;
} Line;

/* One input's part of a line, also with a NUL behind it. */
typedef struct {
  char *at, *end;
} Cell;

static size_t read_lines(Line *lines, size_t max_lines) {
  size_t count = 0;
  for (ssize_t length; count < max_lines; count++) {
    Line *line = &lines[count];
    if ((length = getline(&line->text, &line->capacity, stdin)) < 0) {
      if (!feof(stdin)) fail(FAILED, "cannot read standard input: %s", strerror(errno));
      break;
    }
    if (line->text[length - 1] == '\n') length -= length > 1 && line->text[length - 2] == '\r' ? 2 : 1;
    line->text[length] = '\0';
    line->length = (size_t)length;
  }
  return count;
}

static void split_line(const Line *line, Cell *cells, size_t num_cells) {
  char *at = line->text, *end = line->text + line->length;
  for (size_t i = 0; i < num_cells; i++) {
    char *tab = i + 1 < num_cells ? memchr(at, '\t', (size_t)(end - at)) : NULL;
    cells[i] = (Cell){at, tab != NULL ? tab : end};
    if (tab != NULL) *tab = '\0';
    at = tab != NULL ? tab + 1 : end;
  }
}

static bool skip_blanks(Cell *cell) {
  while (cell->at < cell->end && isspace((unsigned char)*cell->at)) cell->at++;
  return cell->at < cell->end;
}

static size_t count_words(Cell cell) {
  size_t count = 0;
  for (; skip_blanks(&cell); count++) {
    while (cell.at < cell.end && !isspace((unsigned char)*cell.at)) cell.at++;
  }
  return count;
}

/* Moves the number at the front of the cell to `place`. */
static void take_number(Cell *cell, const Endpoint *input, void *place, size_t line_number) {
  char *stop;
  errno = 0;
  if (input->dtype == TF_FLOAT) {
    *(float *)place = strtof(cell->at, &stop);
  } else {
    const int64_t number = strtoll(cell->at, &stop, 10);
    if (input->dtype == TF_INT64) *(int64_t *)place = number;
    else *(int32_t *)place = (int32_t)number;
    if (input->dtype == TF_INT32 && *(int32_t *)place != number) errno = ERANGE;
  }
  if (errno != 0 || stop == cell->at || (stop < cell->end && !isspace((unsigned char)*stop))) {
    fail(FAILED, "line %zu: `%s` must be of type %s. Received: %s", line_number, input->name,
         dtype_name(input->dtype), cell->at);
  }
  cell->at = stop;
}

/* The tensor of one input, of every `stride`-th cell. Its strings are views of the cells, which must outlive it. */
static TF_Tensor *make_input(const Endpoint *input, const Cell *cells, size_t stride, size_t num_rows, size_t before) {
  const size_t size = input->dtype == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(input->dtype);
  size_t width = input->rank == 1 ? 1 : input->shape[1] > 0 ? (size_t)input->shape[1] : 0;
  for (size_t row = 0; row < num_rows && input->dtype != TF_STRING; row++) {
    const size_t count = count_words(cells[row * stride]);
    if (input->rank == 1 && count > 1) {
      fail(FAILED, "line %zu: `%s` must be one number. Received: %s", before + row + 1, input->name,
           cells[row * stride].at);
    }
    width = count > width ? count : width;
  }
  const int64_t shape[2] = {(int64_t)num_rows, (int64_t)width};
  if (width > SIZE_MAX / size / (num_rows + 1)) fail(FAILED, "out of memory");
  TF_Tensor *tensor = TF_AllocateTensor(input->dtype, shape, input->rank, num_rows * width * size);
  if (tensor == NULL || TF_TensorByteSize(tensor) != num_rows * width * size) fail(FAILED, "out of memory");
  char *data = TF_TensorData(tensor);
  if (num_rows * width > 0) memset(data, 0, num_rows * width * size);
  for (size_t row = 0; row < num_rows; row++) {
    Cell cell = cells[row * stride];
    char *place = data + row * width * size;
    if (input->dtype == TF_STRING) {
      TF_StringInit((TF_TString *)place);
      TF_StringAssignView((TF_TString *)place, cell.at, (size_t)(cell.end - cell.at));
    } else {
      for (; skip_blanks(&cell); place += size) take_number(&cell, input, place, before + row + 1);
    }
  }
  return tensor;
}

/* ==== Rows out ==== */

/* Bytes of the UTF-8 sequence at the front of a string; 0 if there is none. */
static size_t utf8_length(const unsigned char *at, size_t left) {
  if (at[0] < 0x80) return 1;
  const size_t length = at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
  if (length == 0 || length > left) return 0;
  /* Of the second byte: no longer way to write a character, no surrogate, nothing above U+10FFFF. */
  const unsigned char low = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : 0xbf;
  if (at[1] < low || at[1] > high) return 0;
  for (size_t i = 2; i < length; i++) {
    if (at[i] < 0x80 || at[i] > 0xbf) return 0;
  }
  return length;
}

static void print_json_string(const char *string, size_t size) {
  const unsigned char *at = (const unsigned char *)string, *end = at + size;
  putchar('"');
  for (size_t length; at < end; at += length > 0 ? length : 1) {
    length = utf8_length(at, (size_t)(end - at));
    if (length == 0) fputs("\\ufffd", stdout);
    else if (*at < 0x20) printf("\\u%04x", *at);
    else if (*at == '"' || *at == '\\') printf("\\%c", *at);
    else fwrite(at, 1, length, stdout);
  }
  putchar('"');
}

static void print_json_element(const TF_Tensor *tensor, size_t index) {
  const void *data = TF_TensorData(tensor);
  const TF_DataType dtype = TF_TensorType(tensor);
  if (dtype == TF_STRING) {
    const TF_TString *string = (const TF_TString *)data + index;
    print_json_string(TF_StringGetDataPointer(string), TF_StringGetSize(string));
  }
  if (dtype == TF_BOOL) fputs(((const unsigned char *)data)[index] ? "true" : "false", stdout);
  if (dtype == TF_INT32) printf("%" PRId32, ((const int32_t *)data)[index]);
  if (dtype == TF_INT64) printf("%" PRId64, ((const int64_t *)data)[index]);
  if (dtype == TF_FLOAT) {
    const float number = ((const float *)data)[index];
    if (isfinite(number)) printf("%.9g", (double)number); /* so many digits that it is read back as it was */
    else fputs("null", stdout);
  }
}

/* Writes the elements from `index` on that dimension `axis` and those behind it span; moves `index` past them. */
static void print_json_value(const TF_Tensor *tensor, int axis, size_t *index) {
  if (axis == TF_NumDims(tensor)) {
    print_json_element(tensor, (*index)++);
    return;
  }
  putchar('[');
  for (int64_t i = 0; i < TF_Dim(tensor, axis); i++) {
    if (i > 0) fputs(", ", stdout);
    print_json_value(tensor, axis + 1, index);
  }
  putchar(']');
}

static size_t elements_per_row(const TF_Tensor *tensor) {
  size_t count = 1;
  for (int axis = 1; axis < TF_NumDims(tensor); axis++) count *= (size_t)TF_Dim(tensor, axis);
  return count;
}

static void print_json_row(const Endpoint *const *outputs, TF_Tensor *const *tensors, size_t count, size_t row) {
  for (size_t i = 0; i < count; i++) {
    size_t index = row * elements_per_row(tensors[i]);
    fputs(i == 0 ? "{" : ", ", stdout);
    print_json_string(outputs[i]->name, strlen(outputs[i]->name));
    fputs(": ", stdout);
    print_json_value(tensors[i], 1, &index);
  }
  puts("}");
}

static void print_text_row(const TF_Tensor *tensor, size_t row) {
  const size_t count = elements_per_row(tensor);
  const TF_TString *strings = (const TF_TString *)TF_TensorData(tensor) + row * count;
  for (size_t i = 0; i < count; i++) {
    const char *at = TF_StringGetDataPointer(&strings[i]), *end = at + TF_StringGetSize(&strings[i]);
    if (i > 0) putchar('\t');
    for (; at < end; at++) putchar((*at >= '\t' && *at <= '\r') || (*at >= 0x1c && *at <= 0x1e) ? ' ' : *at);
  }
  putchar('\n');
}

/* ==== The model ==== */

/* What is fetched: all outputs, or the one that holds the translation. Returns their number. */
static size_t choose_outputs(const Signature *signature, bool json, const Endpoint **chosen) {
  for (size_t i = 0; i < signature->num_outputs; i++) {
    const Endpoint *output = &signature->outputs[i];
    const bool better = chosen[0] == NULL || strcmp(output->name, "translation") == 0;
    if (json) chosen[i] = output;
    else if (output->dtype == TF_STRING && better) chosen[0] = output;
  }
  if (!json && chosen[0] == NULL) {
    fail(WRONG_USAGE, "signature `%s` has no string output: add --json", signature->name);
  }
  return json ? signature->num_outputs : 1;
}

static TF_Output find_tensor(TF_Graph *graph, const Endpoint *endpoint) {
  const char *name = endpoint->operation != NULL ? endpoint->operation : "";
  const TF_Output output = {TF_GraphOperationByName(graph, name), endpoint->index};
  if (output.oper == NULL || output.index < 0 || output.index >= TF_OperationNumOutputs(output.oper)) {
    fail(FAILED, "the graph has no tensor %s:%d, which is to be `%s`", name, endpoint->index, endpoint->name);
  }
  return output;
}

static void check_input(const Endpoint *input) {
  const bool number = input->dtype == TF_INT32 || input->dtype == TF_INT64 || input->dtype == TF_FLOAT;
  if (!(input->rank == 1 && input->dtype == TF_STRING) && !(number && (input->rank == 1 || input->rank == 2))) {
    fail(FAILED, "input `%s` must hold a string, a number or a list of numbers for each row", input->name);
  }
}

static void check_output(const Endpoint *output, const TF_Tensor *tensor, size_t num_rows) {
  if (TF_NumDims(tensor) < 1 || TF_Dim(tensor, 0) != (int64_t)num_rows) {
    fail(FAILED, "output `%s` must have one row for each line", output->name);
  }
  if (TF_TensorType(tensor) != output->dtype || dtype_name(output->dtype) == NULL) {
    fail(FAILED, "output `%s` is of a type that cannot be written", output->name);
  }
}

/* Runs standard input, in batches of `max_rows` lines. The first one is run even if it is empty, as a trial of that. */
static void run_lines(TF_Session *session, TF_Graph *graph, const Signature *signature, size_t max_rows, bool json) {
  const size_t num_inputs = signature->num_inputs;
  const Endpoint **outputs = room(NULL, signature->num_outputs, sizeof *outputs);
  const size_t num_outputs = choose_outputs(signature, json, outputs);
  TF_Output *feeds = room(NULL, num_inputs, sizeof *feeds), *fetches = room(NULL, num_outputs, sizeof *fetches);
  TF_Tensor **fed = room(NULL, num_inputs, sizeof *fed), **fetched = room(NULL, num_outputs, sizeof *fetched);
  Line *lines = room(NULL, max_rows, sizeof *lines);
  Cell *cells = room(NULL, max_rows, num_inputs * sizeof *cells + 1);
  TF_Status *status = TF_NewStatus();
  for (size_t i = 0; i < num_inputs; i++) {
    check_input(&signature->inputs[i]);
    feeds[i] = find_tensor(graph, &signature->inputs[i]);
  }
  for (size_t i = 0; i < num_outputs; i++) fetches[i] = find_tensor(graph, outputs[i]);

  size_t before = 0, num_rows = max_rows;
  while (num_rows == max_rows) {
    num_rows = read_lines(lines, max_rows);
    if (num_rows == 0 && before > 0) break;
    for (size_t row = 0; row < num_rows; row++) split_line(&lines[row], &cells[row * num_inputs], num_inputs);
    for (size_t i = 0; i < num_inputs; i++) {
      fed[i] = make_input(&signature->inputs[i], &cells[i], num_inputs, num_rows, before);
    }
    TF_SessionRun(session, NULL, feeds, fed, (int)num_inputs, fetches, fetched, (int)num_outputs, NULL, 0, NULL,
                  status);
    check(status, "run signature", signature->name);
    for (size_t i = 0; i < num_outputs; i++) check_output(outputs[i], fetched[i], num_rows);
    for (size_t row = 0; row < num_rows; row++) {
      if (json) print_json_row(outputs, fetched, num_outputs, row);
      else print_text_row(fetched[0], row);
    }
    if (fflush(stdout) != 0) fail(FAILED, "cannot write standard output: %s", strerror(errno));
    for (size_t i = 0; i < num_inputs; i++) TF_DeleteTensor(fed[i]);
    for (size_t i = 0; i < num_outputs; i++) TF_DeleteTensor(fetched[i]);
    before += num_rows;
  }
  for (size_t row = 0; row < max_rows; row++) free(lines[row].text);
  free(lines), free(cells), free(fed), free(fetched), free(feeds), free(fetches), free(outputs);
  TF_DeleteStatus(status);
}

static void list_signatures(const Signature *signatures, size_t count) {
  for (const Signature *one = signatures; one < signatures + count; one++) {
    puts(one->name);
    list_endpoints("input", one->inputs, one->num_inputs);
    list_endpoints("output", one->outputs, one->num_outputs);
  }
  if (fflush(stdout) != 0) fail(FAILED, "cannot write standard output: %s", strerror(errno));
}

/* ==== The command line ==== */

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"signature", required_argument, NULL, 's'}, {"batch", required_argument, NULL, 'b'},
      {"library", required_argument, NULL, 'o'},   {"json", no_argument, NULL, 'j'},
      {"list", no_argument, NULL, 'l'},            {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0}};
  const char *name = "serving_default", *library = NULL;
  char *end = "";
  long max_rows = 32;
  bool json = false, list = false;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == 's') name = optarg;
    if (option == 'b') max_rows = strtol(optarg, &end, 10);
    if (option == 'o') library = optarg;
    if (option == 'j') json = true;
    if (option == 'l') list = true;
    if (option == 'h') return fputs(usage, stdout) < 0;
    if (option == '?') return fputs(usage, stderr), WRONG_USAGE;
    if (*end != '\0' || max_rows < 1 || max_rows > 1000000) {
      fail(WRONG_USAGE, "`--batch` must be from 1 to 1000000. Received: %s", optarg);
    }
  }
  if (optind + 1 != argc) fail(WRONG_USAGE, "there must be one EXPORT. Received: %d\n\n%s", argc - optind, usage);
  const char *export = argv[optind];

  TF_Status *status = TF_NewStatus();
  if (library != NULL) {
    TF_Library *handle = TF_LoadLibrary(library, status);
    check(status, "load the library", library);
    TF_DeleteLibraryHandle(handle); /* the operations stay */
  }
  disable_xla_compilation();
  TF_SessionOptions *session_options = TF_NewSessionOptions();
  TF_Graph *graph = TF_NewGraph();
  TF_Buffer *meta_graph = TF_NewBuffer();
  const char *const tags[] = {"serve"};
  TF_Session *session =
      TF_LoadSessionFromSavedModel(session_options, NULL, export, tags, 1, graph, meta_graph, status);
  check(status, "load the export", export);

  size_t num_signatures, chosen = 0;
  const unsigned char *data = meta_graph->data;
  const Signature *signatures = read_signatures((Bytes){data, data + meta_graph->length}, &num_signatures);
  if (list) {
    list_signatures(signatures, num_signatures);
  } else {
    while (chosen < num_signatures && strcmp(signatures[chosen].name, name) != 0) chosen++;
    if (chosen == num_signatures) fail(FAILED, "the export has no signature `%s`; --list writes those it has", name);
    run_lines(session, graph, &signatures[chosen], (size_t)max_rows, json);
  }
  TF_CloseSession(session, status);
  check(status, "close", export);
  TF_DeleteSession(session, status);
  check(status, "close", export);
  TF_DeleteGraph(graph);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteSessionOptions(session_options);
  TF_DeleteStatus(status);
  return 0; /* the signatures end with the process */
}
